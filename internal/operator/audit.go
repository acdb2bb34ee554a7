package operator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Audited does something that changes the relay or its rows, and records the caller and the state before and after. What was refused has
// changed nothing and is not recorded; what went wrong in the middle is. state may be nil. For work on many rows there is Begin.
func (o *Operator) Audited(ctx context.Context, what string, state func() string, do func() error) error {
	if state == nil {
		state = func() string { return "" }
	}
	c := Change{At: time.Now().UTC().Truncate(time.Millisecond), By: Caller(ctx), What: what, Before: state()}
	err := do()
	if err != nil {
		var refused *Error
		if errors.As(err, &refused) && refused.Code != CodeFailure {
			return err
		}
		c.Error = err.Error()
	}
	c.After = state()
	if failed := o.Record(&c); failed != nil {
		return errors.Join(err, fmt.Errorf("it was done, but could not be recorded: %w", failed))
	}
	return err
}

// Begin records a change before its work, so that a process which ends in the middle leaves a line. finish, to be called after the work,
// records its end in the place of that line, and returns err, joined with why the end could not be recorded.
func Begin(ctx context.Context, record func(*Change) error, what, before string) (finish func(after string, err error) error, err error) {
	c := &Change{At: time.Now().UTC().Truncate(time.Millisecond), By: Caller(ctx), What: what, Before: before, Unfinished: true}
	if err := record(c); err != nil {
		return nil, fmt.Errorf("nothing was changed, because it could not be recorded: %w", err)
	}
	return func(after string, err error) error {
		c.After, c.Unfinished = after, false
		if err != nil {
			c.Error = err.Error()
		}
		if failed := record(c); failed != nil {
			return errors.Join(err, fmt.Errorf("it was done, but its end could not be recorded: %w", failed))
		}
		return err
	}, nil
}

// Audit returns the newest changes, limit at most.
func (o *Operator) Audit(_ context.Context, limit int) ([]Change, error) {
	all, err := o.State.Changes()
	if err != nil {
		return nil, fmt.Errorf("read the list of changes: %w", err)
	}
	return append([]Change{}, all[:min(limit, len(all))]...), nil
}

// place is the checkpoint for the list of changes.
func (o *Operator) place() string {
	at, _ := o.State.Checkpoint()
	if at.GTIDs != "" {
		return at.String() + " GTIDs " + at.GTIDs
	}
	return at.String()
}

// paused is the pause for the list of changes.
func (o *Operator) paused() string {
	if p := o.State.Pause(); p != nil {
		return p.String()
	}
	return "at work"
}
