package app

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// move is an operator's order to go on from another position.
type move struct {
	id     server.ID
	to     outbox.Position
	reason string
	done   chan error // buffered 1
}

var errNotRunning = errors.New("the relay is not following the log right now: try again when `status` shows it active")

// MoveTo makes the running relay go on from another position: the reader is paused, the mark and the checkpoint are
// moved, and the reader starts anew. Moving back repeats nothing that is SENT, because the catch-up zone asks the table;
// moving forward leaves what lies between to a full sweep.
func (r *Relay) MoveTo(ctx context.Context, id server.ID, to outbox.Position, reason string) error {
	m := &move{id: id, to: to, reason: reason, done: make(chan error, 1)}
	r.mu.Lock()
	if r.pause == nil || r.order != nil || !r.active {
		r.mu.Unlock()
		return errNotRunning
	}
	r.order = m
	r.pause()
	r.mu.Unlock()
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the move was ordered, but its end was not waited for: %w", ctx.Err())
	}
}

// moved carries out the order that ended the reader's run and returns where the next one begins.
func (r *Relay) moved() (outbox.Position, error) {
	r.mu.Lock()
	m := r.order
	r.order = nil
	r.mu.Unlock()
	if m == nil {
		return outbox.Position{}, errors.New("the reader ended without being told to")
	}
	err := r.progress.move(m.id, m.to, m.reason)
	m.done <- err
	if err != nil {
		return outbox.Position{}, fmt.Errorf("move to %s: %w", m.to, err)
	}
	r.log.Info("the checkpoint was moved by an operator", zap.Stringer("to", m.to))
	r.sweeper.Full()
	return m.to, nil
}

// Sweep asks for a sweep at once, over rows of any age.
func (r *Relay) Sweep() error {
	if !r.Ready() {
		return errNotRunning
	}
	r.sweeper.Nudge()
	return nil
}
