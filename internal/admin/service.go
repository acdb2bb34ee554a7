package admin

import (
	"context"
	"io"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// Service is the daemon as this package needs it. Its methods are called from many goroutines at once. Errors that are an
// *Error keep their code on the way to the caller; any other is a failure.
type Service interface {
	operator.Messages
	// Live returns an error when the process cannot make progress by itself and should be restarted. A broker or a database
	// that is away is no such reason.
	Live() error
	// Ready returns an error while the service starts or stops; a broker or a database that is away is no reason either.
	Ready() error
	Status(ctx context.Context) operator.Status
	// Timeline returns what was measured since a moment, and what happened.
	Timeline(ctx context.Context, span operator.Span) (operator.Timeline, error)
	Checkpoint(ctx context.Context) (operator.Checkpoint, error)
	// History returns the checkpoints of the past, newest first, limit at most.
	History(ctx context.Context, limit int) ([]operator.HistoryEntry, error)
	// SetCheckpoint looks at what a move of the checkpoint would do and, unless it is a dry run, does it: the reader pauses,
	// moves and resumes.
	SetCheckpoint(ctx context.Context, target operator.Target) (operator.Preview, error)
	Gaps(ctx context.Context) ([]outbox.Gap, error)
	// AckGap marks a gap as seen. CodeNotFound when there is no such gap.
	AckGap(ctx context.Context, id uint64) error
	// Pause stops the intake until Resume, over restarts too, and returns the pause that stands: one that is paused stays as it is.
	Pause(ctx context.Context, p outbox.Pause) (*outbox.Pause, error)
	// Resume starts the intake again.
	Resume(ctx context.Context) error
	// Paused returns the pause; nil when there is none.
	Paused() *outbox.Pause
	// Export writes the whole state of the directory, for Import in another one.
	Export(ctx context.Context, w io.Writer) error
	// Audit returns what people did, newest first, limit at most.
	Audit(ctx context.Context, limit int) ([]operator.Change, error)
	// Sweep starts a sweep for rows of any age, or lets one that is running be followed by another, and returns at once.
	Sweep(ctx context.Context) error
	// Retention starts a pass that takes old rows out of the tables, whatever its window says, and returns at once.
	Retention(ctx context.Context) error
}
