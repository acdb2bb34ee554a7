package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Operator is what the commands do to the state, in the daemon and without one: it is the part of admin.Service that needs
// nothing but the store and a way to ask the server.
type Operator struct {
	state *checkpoint.Store
	ask   askServer
	// move goes to the position: through the running reader, or in the store alone.
	move func(ctx context.Context, id server.ID, to outbox.Position, reason string) error
	// count is for the preview; nil where the tables cannot be asked.
	count counter
}

// askServer is what a target must be compared with.
type askServer interface {
	Look(ctx context.Context) (server.Info, outbox.Position, error)
	Earliest(ctx context.Context) (outbox.Position, error)
	HasFile(ctx context.Context, p outbox.Position) (bool, error)
	Files(ctx context.Context) ([]server.File, error)
}

// Checkpoint returns the checkpoint and what is around it.
func (o *Operator) Checkpoint(context.Context) (admin.Checkpoint, error) {
	position, _ := o.state.Checkpoint()
	journal, err := o.state.Journal()
	if err != nil {
		return admin.Checkpoint{}, fmt.Errorf("read the journal: %w", err)
	}
	c := admin.Checkpoint{Position: position, Journal: len(journal)}
	if id, ok := o.state.Source(); ok {
		c.Source = id.String()
	}
	return c, nil
}

// History returns the newest checkpoints.
func (o *Operator) History(_ context.Context, limit int) ([]admin.HistoryEntry, error) {
	entries, err := o.state.History()
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	var out []admin.HistoryEntry
	for _, e := range entries[:min(limit, len(entries))] {
		out = append(out, admin.HistoryEntry{Number: e.Number, At: e.At, Position: e.Position, Source: e.Source.String(), Reason: e.Reason})
	}
	return out, nil
}

// Gaps returns the recorded gaps.
func (o *Operator) Gaps(context.Context) ([]outbox.Gap, error) { return o.state.Gaps() }

// AckGap marks a gap as seen.
func (o *Operator) AckGap(_ context.Context, id uint64) error {
	err := o.state.AckGap(id)
	if errors.Is(err, checkpoint.ErrUnknownEntry) {
		return admin.NotFoundf("there is no gap %d: `canal-outbox gaps list` shows them", id)
	}
	return err
}

// SetCheckpoint previews a move and, unless it is a dry run, does it.
func (o *Operator) SetCheckpoint(ctx context.Context, target admin.Target) (admin.Preview, error) {
	if err := target.Check(); err != nil {
		return admin.Preview{}, err
	}
	info, end, err := o.ask.Look(ctx)
	if err != nil {
		return admin.Preview{}, fmt.Errorf("the database must be asked before the checkpoint is moved: %w", err)
	}
	to, reason, err := o.resolve(ctx, target, info, end)
	if err != nil {
		return admin.Preview{}, err
	}
	from, _ := o.state.Checkpoint()
	p := o.preview(ctx, info, from, to)
	if target.DryRun {
		return p, nil
	}
	if err := o.recordSkip(info, from, to); err != nil {
		return p, err
	}
	if err := o.move(ctx, info.ID, to, reason); err != nil {
		return p, err
	}
	p.Applied = true
	return p, nil
}

// resolve makes a position of the target and refuses one that this server never had.
func (o *Operator) resolve(ctx context.Context, t admin.Target, info server.Info, end outbox.Position) (to outbox.Position, reason string, err error) {
	switch {
	case t.Latest:
		return end, "set by an operator: latest", nil
	case t.Earliest:
		to, err = o.ask.Earliest(ctx)
		return to, "set by an operator: earliest", err
	case t.GTID != "":
		to, err = gtidTarget(info, t.GTID)
		return to, "set by an operator: GTID set", err
	case t.Entry != nil:
		return o.entry(*t.Entry)
	}
	to = outbox.Position{File: t.File, Offset: t.Pos}
	has, err := o.ask.HasFile(ctx, to)
	if err != nil {
		return to, "", err
	}
	if !has {
		return to, "", admin.Refusedf("the server has no position %s: the file was purged, never existed or is shorter; "+
			"`checkpoint set --earliest` takes the oldest that is left", to)
	}
	return to, "set by an operator: file and position", nil
}

func (o *Operator) entry(number uint64) (outbox.Position, string, error) {
	entries, err := o.state.History()
	if err != nil {
		return outbox.Position{}, "", fmt.Errorf("read the history: %w", err)
	}
	for _, e := range entries {
		if e.Number == number {
			return e.Position, fmt.Sprintf("rollback to entry %d", number), nil
		}
	}
	return outbox.Position{}, "", admin.NotFoundf("there is no entry %d: `canal-outbox checkpoint history` shows them", number)
}

// gtidTarget refuses transactions that the server does not have: it would end the stream with an error (failure A10).
func gtidTarget(info server.Info, text string) (outbox.Position, error) {
	set, err := outbox.ParseGTIDSet(info.Flavor, text)
	if err != nil {
		return outbox.Position{}, admin.Usagef("%v (the server is %s)", err, info.Flavor)
	}
	to := outbox.Position{GTIDs: set.String()}
	if !info.GTID {
		return to, admin.Refusedf("the server has no GTIDs (gtid_mode is off): name a file and a position")
	}
	if relation, why := server.CheckIdentity(info.ID, to, info, outbox.Position{}); relation != server.Same {
		return to, admin.Refusedf("the server cannot resume there: %s", why)
	}
	return to, nil
}

// direction compares the checkpoint with a target.
func (o *Operator) direction(now server.Info, from, to outbox.Position) (order int, known bool) {
	from, to, known = o.comparable(now, from, to)
	if !known {
		return 0, false
	}
	return direction(now.Flavor, from, to)
}

// comparable leaves of two positions what can be compared. Files and offsets of two servers do not compare, whatever their
// names say, and GTIDs only where the one has the other's history: MariaDB numbers the domain 0 everywhere.
func (o *Operator) comparable(now server.Info, from, to outbox.Position) (outbox.Position, outbox.Position, bool) {
	if recorded, ok := o.state.Source(); ok && !recorded.Same(now.ID) {
		if relation, _ := server.CheckIdentity(recorded, from, now, outbox.Position{}); relation == server.Foreign {
			return from, to, false
		}
		from.File, to.File = "", ""
	}
	return from, to, true
}

// direction compares two positions of one server; known is false when they do not compare.
func direction(flavor outbox.Flavor, from, to outbox.Position) (order int, known bool) {
	if from.File != "" && to.File != "" {
		return to.Compare(from), true
	}
	had, err1 := outbox.ParseGTIDSet(flavor, from.GTIDs)
	has, err2 := outbox.ParseGTIDSet(flavor, to.GTIDs)
	switch {
	case err1 != nil || err2 != nil || from.GTIDs == "" || to.GTIDs == "":
		return 0, false
	case had.Equal(has):
		return 0, true
	case has.Contains(had):
		return 1, true
	case had.Contains(has):
		return -1, true
	}
	return 0, false
}

// notes say what follows from a move.
func (o *Operator) notes(ctx context.Context, info server.Info, from, to outbox.Position) []string {
	notes := []string{}
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if recorded, ok := o.state.Source(); ok && !recorded.Same(info.ID) {
		add("the checkpoint was of %s; from now on it is of %s", recorded, info.ID)
	}
	switch order, known := o.direction(info, from, to); {
	case from.IsZero():
		add("there is no checkpoint yet: reading starts at the new position")
	case !known:
		add("the two positions do not compare: a full sweep publishes every row that is still PENDING, whatever the log shows from the new one on")
		add("this is recorded as a gap")
	case order > 0:
		add("what lies between is not read: a full sweep publishes the rows in it that are still PENDING, without the order of the log")
		add("the skipped part is recorded as a gap")
	case order < 0:
		add("what lies between is read again: each row is looked up in its table, PENDING ones are published, all others are passed over")
	default:
		add("the position does not change")
	}
	if to.File == "" {
		return notes
	}
	if has, err := o.ask.HasFile(ctx, to); err != nil {
		add("whether the server still has the position could not be asked: %v", err)
	} else if !has {
		add("the server does not have this position any more: the reader will record a gap and a full sweep stands in")
	}
	return notes
}

// recordSkip leaves a durable trace of a part of the log that was skipped on purpose.
func (o *Operator) recordSkip(now server.Info, from, to outbox.Position) error {
	if order, known := o.direction(now, from, to); from.IsZero() || known && order <= 0 {
		return nil
	}
	id, err := o.state.AddGap(outbox.Gap{From: from, To: to, Cause: outbox.GapOperator})
	if err == nil {
		err = o.state.AckGap(id) // whoever made it knows of it
	}
	if err != nil {
		return fmt.Errorf("record the skipped part: %w", err)
	}
	return nil
}
