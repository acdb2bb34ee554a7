package operator

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Operator is what a person can see of a relay and do to it, in two modes: within a running relay, and on the state directory and the
// database alone. It has what both modes share; what only one has is nil in the other. It has more than 25 methods because each command of a person is one,
// and so are the steps that only this command has.
type Operator struct {
	State State // nil where there is no state directory yet: then only the methods of Messages may be used
	Ask   Server
	// Move goes to the position: through the running reader, or in the store alone.
	Move func(ctx context.Context, id server.ID, to outbox.Position, reason string) error
	// Hold stops the intake, or with nil resumes it: of the running relay, or in the store alone.
	Hold func(*outbox.Pause) error
	// Republish publishes SENT rows again; nil where no relay is active.
	Republish func(ctx context.Context, rows []outbox.Candidate) (n int, err error)
	// Record writes a change down: a new one, whose number it fills in, or with a number the end of that one.
	Record func(*Change) error
	// Past returns what was measured in a span of time, and what happened.
	Past func(Span) (Timeline, error)
	// Between hands over the transactions of the log between two file positions, in its order; nil where the tables are not known.
	Between func(ctx context.Context, from, to outbox.Position, each func(*outbox.Txn) error) error
	// Tables returns the tables that have a status, LogOnly names those that have none. The error says why no table can be read.
	Tables  func(ctx context.Context) (Rows, error)
	LogOnly []string
	Messaging
}

// Messaging is what an Operator needs for single messages in addition.
type Messaging struct {
	// Refuse is why no row may be changed; nil when it may.
	Refuse error
	// Flow is the running relay's view of a row, StartSweep asks it for a sweep; both are nil where no relay runs.
	Flow       func(id outbox.Identity, topic string) Flow
	StartSweep func() error
	// Noted returns what the state directory has noted on a row; Note notes what a person does to rows. Both are nil without a directory.
	Noted func(outbox.Identity) ([]TraceEvent, error)
	Note  func(ids []outbox.Identity, what, detail string)
	// Broker opens a way to read topics back, to be closed after use; nil where the sink cannot be read.
	Broker func() (sink.Reader, func(), error)
	// ClaimTimeout and Interval are those of the configuration.
	ClaimTimeout, Interval time.Duration
}

// Service is what the commands use, with a running relay and without one: see the methods of Operator.
type Service interface {
	Messages
	Checkpoint(ctx context.Context) (Checkpoint, error)
	// History returns the checkpoints of the past, newest first, limit at most.
	History(ctx context.Context, limit int) ([]HistoryEntry, error)
	// SetCheckpoint previews a move of the checkpoint and, unless it is a dry run, does it: a running reader pauses, moves and resumes.
	SetCheckpoint(ctx context.Context, target Target) (Preview, error)
	Timeline(ctx context.Context, span Span) (Timeline, error)
	Gaps(ctx context.Context) ([]outbox.Gap, error)
	// AckGap marks a gap as seen. CodeNotFound when there is no such gap.
	AckGap(ctx context.Context, id uint64) error
	// Pause stops the intake until Resume, over restarts too, and returns the pause in force: one that is paused stays as it is.
	Pause(ctx context.Context, p outbox.Pause) (*outbox.Pause, error)
	Resume(ctx context.Context) error
	// Export writes the whole state of the directory, for Import in another one.
	Export(ctx context.Context, w io.Writer) error
	// Audit returns what people did, newest first, limit at most.
	Audit(ctx context.Context, limit int) ([]Change, error)
}

var _ Service = (*Operator)(nil)

// Timeline returns what was measured in a span of time, and what happened.
func (o *Operator) Timeline(_ context.Context, span Span) (Timeline, error) { return o.Past(span) }

// State is the store as an operator sees it.
type State interface {
	// Checkpoint and Source return false before the first start.
	Checkpoint() (outbox.Position, bool)
	Source() (server.ID, bool)
	// Journalled is the number of sent rows whose status the table does not have yet; SentRow returns one of them.
	Journalled() int
	SentRow(outbox.Identity) (row outbox.Completion, found bool, err error)
	// History returns the checkpoints of the past, newest first.
	History() ([]HistoryEntry, error)
	Gaps() ([]outbox.Gap, error)
	// Export writes the whole state.
	Export(w io.Writer) error
	// Changes returns what people did, newest first.
	Changes() ([]Change, error)
	// Pause returns the pause in force, nil when there is none.
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
	// Boundaries returns the transaction boundaries nearest to an offset in a file: the last one at or before it, the first one
	// at or after it. after is zero when the log ends before.
	Boundaries(ctx context.Context, at outbox.Position) (before, after outbox.Position, err error)
	// At returns the end of the last transaction before a time, zero when the log begins later; since is when it does.
	At(ctx context.Context, target time.Time) (at outbox.Position, since time.Time, err error)
	// Now is the server's clock.
	Now(ctx context.Context) (time.Time, error)
	// Files lists the files of the log, oldest first.
	Files(ctx context.Context) ([]server.File, error)
}

// Pause stops the intake and returns the pause in force: the first one stays, with its reason.
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
	c := Checkpoint{Position: position, Journal: o.State.Journalled()}
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
	return append([]HistoryEntry{}, entries[:min(limit, len(entries))]...), nil
}

// Export writes the whole state, as it is now.
func (o *Operator) Export(_ context.Context, w io.Writer) error {
	if at, has := o.State.Checkpoint(); !has || at.IsZero() {
		return NotFoundf("there is no checkpoint yet: there is nothing to export")
	}
	return o.State.Export(w)
}

// Gaps returns the recorded gaps.
func (o *Operator) Gaps(context.Context) ([]outbox.Gap, error) {
	gaps, err := o.State.Gaps()
	return append([]outbox.Gap{}, gaps...), err
}

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
