package admin

import (
	"context"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// Service is the relay as this package needs it. Its methods are called from many goroutines at once. Errors that are an
// *Error keep their code on the way to the caller; any other is a failure.
type Service interface {
	operator.Service
	// Live returns an error when the process cannot make progress by itself and should be restarted. A broker or a database
	// that is away is no such reason.
	Live() error
	// Ready returns an error while the service starts or stops; a broker or a database that is away is no reason either.
	Ready() error
	Status(ctx context.Context) operator.Status
	// Paused returns the pause; nil when there is none.
	Paused() *outbox.Pause
	// Sweep starts a sweep for rows of any age, or lets one that is running be followed by another, and returns at once.
	Sweep(ctx context.Context) error
	// Retention starts a pass that takes old rows out of the tables, whatever its window says, and returns at once.
	Retention(ctx context.Context) error
}
