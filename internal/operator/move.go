package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// SetCheckpoint previews a move and, unless it is a dry run, does it.
func (o *Operator) SetCheckpoint(ctx context.Context, target Target) (Preview, error) {
	if err := target.Check(); err != nil {
		return Preview{}, err
	}
	info, end, err := o.Ask.Look(ctx)
	if err != nil {
		return Preview{}, fmt.Errorf("the database must be asked before the checkpoint is moved: %w", err)
	}
	to, reason, err := o.resolve(ctx, target, info, end)
	if err != nil {
		return Preview{}, err
	}
	from, _ := o.State.Checkpoint()
	p := o.preview(ctx, info, from, to)
	if target.Republish {
		p.Notes = nil // of a move
		return o.replay(ctx, target, p)
	}
	if target.DryRun {
		return p, nil
	}
	skipped := o.skips(info, from, to) // before the move, which makes info the recorded server
	what := "checkpoint set (" + reason + ")"
	if err := o.Audited(ctx, what, o.place, func() error { return o.Move(ctx, info.ID, to, reason) }); err != nil {
		return p, err
	}
	p.Applied = true
	if skipped {
		return p, o.recordSkip(from, to)
	}
	return p, nil
}

// resolve makes a position of the target and refuses one that this server never had.
func (o *Operator) resolve(ctx context.Context, t Target, info server.Info, end outbox.Position) (to outbox.Position, reason string, err error) {
	switch {
	case t.Latest:
		return end, "set by an operator: latest", nil
	case t.Earliest:
		to, err = o.Ask.Earliest(ctx)
		return to, "set by an operator: earliest", err
	case t.Time != "":
		to, err = o.atTime(ctx, t.Time)
		return to, "set by an operator: " + t.Time, err
	case t.GTID != "":
		to, err = gtidTarget(info, t.GTID)
		return to, "set by an operator: GTID set", err
	case t.Entry != nil:
		return o.entry(*t.Entry)
	}
	to = outbox.Position{File: t.File, Offset: t.Pos}
	return to, "set by an operator: file and position", o.checkPlace(ctx, to)
}

// boundaryPatience bounds the search for boundaries, which reads the file up to the offset.
const boundaryPatience = time.Minute

// checkPlace refuses an offset that the server does not have, and one inside a transaction: the reader could make nothing of
// what it finds there.
func (o *Operator) checkPlace(ctx context.Context, to outbox.Position) error {
	has, err := o.Ask.HasFile(ctx, to)
	if err != nil {
		return err
	}
	if !has {
		return Refusedf("the server has no position %s: the file was purged, never existed or is shorter; "+
			"`checkpoint set --earliest` takes the oldest that is left", to)
	}
	ctx, cancel := context.WithTimeout(ctx, boundaryPatience)
	defer cancel()
	before, after, err := o.Ask.Boundaries(ctx, to)
	switch {
	case err != nil:
		return fmt.Errorf("whether a transaction ends at %s could not be found out (the file is read up to there, for at most %v): %w; "+
			"`checkpoint rollback` and `checkpoint set --gtid` need no such look", to, boundaryPatience, err)
	case before == to:
		return nil
	case after.IsZero():
		return Refusedf("%s is inside a transaction: the last one before it ends at %s, and the log has no later end; "+
			"use one of `checkpoint set --file %s --pos %d` and `--latest`", to, before, before.File, before.Offset)
	}
	return Refusedf("%s is inside a transaction: the last one before it ends at %s, the next one at %s; "+
		"use one of `checkpoint set --file %s --pos %d` and `--file %s --pos %d`", to, before, after, before.File, before.Offset, after.File, after.Offset)
}

func (o *Operator) entry(number uint64) (outbox.Position, string, error) {
	entries, err := o.State.History()
	if err != nil {
		return outbox.Position{}, "", fmt.Errorf("read the history: %w", err)
	}
	for _, e := range entries {
		if e.Number == number {
			return e.Position, fmt.Sprintf("rollback to entry %d", number), nil
		}
	}
	return outbox.Position{}, "", NotFoundf("there is no entry %d: `canal-outbox checkpoint history` shows them", number)
}

// gtidTarget refuses transactions that the server does not have: it would end the stream with an error (failure A10).
func gtidTarget(info server.Info, text string) (outbox.Position, error) {
	set, err := outbox.ParseGTIDSet(info.Flavor, text)
	if err != nil {
		return outbox.Position{}, Usagef("%v (the server is %s)", err, info.Flavor)
	}
	to := outbox.Position{GTIDs: set.String()}
	if !info.GTID {
		return to, Refusedf("the server has no GTIDs (gtid_mode is off): name a file and a position")
	}
	if relation, why := server.CheckIdentity(info.ID, to, info, outbox.Position{}); relation != server.Same {
		return to, Refusedf("the server cannot resume there: %s", why)
	}
	return to, nil
}

// skips reports whether a move leaves a part of the log unread, as far as that can be known.
func (o *Operator) skips(now server.Info, from, to outbox.Position) bool {
	order, known := o.direction(now, from, to)
	return !from.IsZero() && (!known || order > 0)
}

// recordSkip leaves a durable trace of a part of the log that was skipped on purpose.
func (o *Operator) recordSkip(from, to outbox.Position) error {
	id, err := o.State.AddGap(outbox.Gap{From: from, To: to, Cause: outbox.GapOperator})
	if err == nil {
		_, err = o.State.AckGap(id) // the operator caused it
	}
	if err != nil {
		return fmt.Errorf("the checkpoint was moved, but the skipped part could not be recorded as a gap: %w", err)
	}
	return nil
}
