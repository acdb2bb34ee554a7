package operator

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Operator is what the commands do to the state, in the daemon and without one: the part of admin.Service that needs
// nothing but the store and a way to ask the server.
type Operator struct {
	State State
	Ask   Server
	// Move goes to the position: through the running reader, or in the store alone.
	Move func(ctx context.Context, id server.ID, to outbox.Position, reason string) error
	// Hold stops the intake, or with nil resumes it: of the running relay, or in the store alone.
	Hold func(*outbox.Pause) error
	// Republish publishes SENT rows again; nil where no relay is active.
	Republish func(ctx context.Context, rows []outbox.Candidate) (n int, err error)
	// Record writes a change down: a new one, whose number it fills in, or with a number the end of that one.
	Record func(*Change) error
	// Between hands over the transactions of the log between two file positions, in its order, and States what their tables show of
	// rows; nil where the tables are not known.
	Between func(ctx context.Context, from, to outbox.Position, each func(*outbox.Txn) error) error
	States  func(ctx context.Context, rows []outbox.Identity) ([]outbox.Candidate, error)
	// Count counts the rows of the mapped tables for the preview; nil where the tables cannot be asked.
	Count func(ctx context.Context) ([]query.Counts, error)
	// LogOnly names the tables that have no status.
	LogOnly []string
}

// State is the store as an operator sees it.
type State interface {
	// Checkpoint and Source return false before the first start.
	Checkpoint() (outbox.Position, bool)
	Source() (server.ID, bool)
	// Journal returns the sent rows whose status the table does not have yet.
	Journal() ([]outbox.Completion, error)
	// History returns the checkpoints of the past, newest first.
	History() ([]HistoryEntry, error)
	Gaps() ([]outbox.Gap, error)
	// Export writes the whole state.
	Export(w io.Writer) error
	// Changes returns what people did, newest first.
	Changes() ([]Change, error)
	// Pause returns the pause that stands, nil when there is none.
	Pause() *outbox.Pause
	// AddGap records a gap and returns its number.
	AddGap(outbox.Gap) (uint64, error)
	// AckGap marks a gap as seen; known is false when there is none of that number.
	AckGap(id uint64) (known bool, err error)
}

// Server is what a target is compared with.
type Server interface {
	// Look says who answers and where its log ends.
	Look(ctx context.Context) (server.Info, outbox.Position, error)
	// Earliest is the oldest position that can be read.
	Earliest(ctx context.Context) (outbox.Position, error)
	// HasFile reports whether the server still has a position.
	HasFile(ctx context.Context, p outbox.Position) (bool, error)
	// Boundaries returns the transaction boundaries nearest to a place in a file: the last one at or before it, the first one
	// at or after it. after is zero when the log ends before.
	Boundaries(ctx context.Context, at outbox.Position) (before, after outbox.Position, err error)
	// At returns the end of the last transaction before a moment, zero when the log begins later; since is when it does.
	At(ctx context.Context, moment time.Time) (at outbox.Position, since time.Time, err error)
	// Now is the server's clock.
	Now(ctx context.Context) (time.Time, error)
	// Files lists the files of the log, oldest first.
	Files(ctx context.Context) ([]server.File, error)
}

// Pause stops the intake and returns the pause that stands: the first one stays, with its reason.
func (o *Operator) Pause(ctx context.Context, p outbox.Pause) (*outbox.Pause, error) {
	if was := o.State.Pause(); was != nil {
		return was, nil
	}
	return &p, o.Audited(ctx, "pause", o.paused, func() error { return o.Hold(&p) })
}

// Resume starts the intake again.
func (o *Operator) Resume(ctx context.Context) error {
	if o.State.Pause() == nil {
		return nil
	}
	return o.Audited(ctx, "resume", o.paused, func() error { return o.Hold(nil) })
}

// Paused returns the pause; nil when there is none.
func (o *Operator) Paused() *outbox.Pause { return o.State.Pause() }

// Checkpoint returns the checkpoint and what is around it.
func (o *Operator) Checkpoint(context.Context) (Checkpoint, error) {
	position, _ := o.State.Checkpoint()
	journal, err := o.State.Journal()
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read the journal: %w", err)
	}
	c := Checkpoint{Position: position, Journal: len(journal)}
	if id, ok := o.State.Source(); ok {
		c.Source = id.String()
	}
	return c, nil
}

// History returns the newest checkpoints.
func (o *Operator) History(_ context.Context, limit int) ([]HistoryEntry, error) {
	entries, err := o.State.History()
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	return entries[:min(limit, len(entries))], nil
}

// Export writes the whole state, as it is at this moment.
func (o *Operator) Export(_ context.Context, w io.Writer) error {
	if at, has := o.State.Checkpoint(); !has || at.IsZero() {
		return NotFoundf("there is no checkpoint yet: there is nothing to export")
	}
	return o.State.Export(w)
}

// Gaps returns the recorded gaps.
func (o *Operator) Gaps(context.Context) ([]outbox.Gap, error) { return o.State.Gaps() }

// AckGap marks a gap as seen.
func (o *Operator) AckGap(ctx context.Context, id uint64) error {
	return o.Audited(ctx, fmt.Sprintf("gaps ack %d", id), nil, func() error {
		known, err := o.State.AckGap(id)
		if err == nil && !known {
			return NotFoundf("there is no gap %d: `canal-outbox gaps list` shows them", id)
		}
		return err
	})
}
