package app

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/relay"
)

// record writes a change down, in the state directory and in the log.
func (in *instance) record(c *operator.Change) error {
	said := "changed by a person"
	if c.Unfinished {
		said = "a person's change begins"
	}
	in.log.Named("audit").Info(said, zap.String("by", c.By), zap.String("what", c.What),
		zap.String("before", c.Before), zap.String("after", c.After), zap.String("error", c.Error))
	return operatorState{in.state}.record(c)
}

// Sweep asks for a sweep.
func (s *service) Sweep(ctx context.Context) error {
	return s.Audited(ctx, "sweep", nil, s.in.sweep)
}

// sweep refuses a sweep while the relay is paused.
func (in *instance) sweep() error {
	err := in.relay.Sweep()
	if paused := (*relay.PausedError)(nil); errors.As(err, &paused) {
		return operator.Refusedf("%v", err)
	}
	return err
}

// Retention asks for a pass.
func (s *service) Retention(ctx context.Context) error {
	return s.Audited(ctx, "retention", nil, s.leave)
}
