package relay

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// move is an order to continue from another position: an operator's, or, with no position, the low-water mark, because the
// server is another one, or a pause begins or ends.
type move struct {
	id     server.ID
	to     outbox.Position
	reason string
	done   chan error // buffered 1
}

var ErrNotRunning = errors.New("the relay is not following the log now: try again when `canal-outbox status` shows `reader connected`")

// MoveTo makes the running relay continue from another position: it pauses the reader, sets the low-water mark and the
// checkpoint, and restarts the reader. A move back repeats no row that is SENT, because the recovery window queries the table. A
// move forward leaves the rows in between to a full sweep.
func (r *Relay) MoveTo(ctx context.Context, id server.ID, to outbox.Position, reason string) error {
	if len(r.parts.LogOnly) > 0 && r.parts.Prover != nil { // the log shows rows again that are to be sent again
		if err := r.parts.Prover.Mark(ctx); err != nil {
			return err
		}
	}
	m := &move{id: id, to: to, reason: reason, done: make(chan error, 1)}
	r.mu.Lock()
	if r.interrupt == nil || r.pending != nil || !r.active {
		r.mu.Unlock()
		return ErrNotRunning
	}
	r.pending = m
	r.interrupt()
	r.mu.Unlock()
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the move was ordered, but its end was not waited for: %w", ctx.Err())
	}
}

// watchGate makes the reader check the server again whenever the gate has refused a connection, until ctx ends.
func (r *Relay) watchGate(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-r.parts.Gate.refused:
			r.lookAgain(id)
		}
	}
}

// lookAgain makes the reader connect again, because the tables were reached at another server, id, than the one it follows. After
// a failover its stream may be of a server that is alive and out of use; and what the reader waits for may be the tables,
// which are refused until it has looked at the new server. While it looks it is not interrupted: many callers are refused in that time, and it
// would never come to an end. It may have followed to that server since the refusal.
func (r *Relay) lookAgain(id server.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.parts.Gate.Still(id):
	case r.interrupt == nil || r.pending != nil || !r.active || r.parts.State.Pause() != nil: // the end of a pause checks again by itself
	case !r.open:
		r.reader.LookAgain()
	default:
		r.log.Warn("the tables are at another server than the binlog that is read: connecting again")
		r.pending = &move{done: make(chan error, 1)}
		r.interrupt()
	}
}

func (r *Relay) setOpen(open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = open
}

// moved carries out the order that ended the reader's run and returns where the next one begins.
func (r *Relay) moved() (outbox.Position, error) {
	r.mu.Lock()
	m := r.pending
	r.pending = nil
	r.mu.Unlock()
	if m == nil {
		return outbox.Position{}, errors.New("the reader ended without a request")
	}
	if m.to.IsZero() {
		return r.Flow.Rewind()
	}
	from, _ := r.parts.State.Checkpoint()
	err := r.reset(m.id, m.to, m.reason)
	m.done <- err
	if err != nil {
		return outbox.Position{}, fmt.Errorf("move to %s: %w", m.to, err)
	}
	r.log.Info("the checkpoint was moved by an operator", zap.Stringer("to", m.to))
	if from.Compare(m.to) < 0 {
		r.tellLost(from, m.to)
	}
	r.triggers.Full()
	return m.to, nil
}

// PausedError says that an operator's pause has to end first.
type PausedError struct{ Pause *outbox.Pause }

// Error implements error.
func (e *PausedError) Error() string {
	return fmt.Sprintf("the relay is %s: `canal-outbox resume` ends the pause", e.Pause)
}

// Sweep asks for a sweep at once, over rows of any age, and looks at suspended topics at once.
func (r *Relay) Sweep() error {
	if !r.Ready() {
		return ErrNotRunning
	}
	if p := r.parts.State.Pause(); p != nil {
		return &PausedError{p}
	}
	r.Flow.TryTopics() // if one works again there is another sweep
	r.triggers.Trigger()
	return nil
}
