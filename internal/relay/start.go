package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/canal-outbox/canal-outbox/ack"
	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/fallback"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/pipeline"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
	"github.com/canal-outbox/canal-outbox/pipeline/recovery"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/redelivery"
	"github.com/canal-outbox/canal-outbox/sink"
)

// start checks the source, finds where to begin, builds the flow and writes the journal of an earlier run to the tables.
// It returns where the reader begins.
func (r *Relay) start(ctx context.Context) (outbox.Position, error) {
	_, has := r.parts.State.Checkpoint()
	info, at, err := r.begin(ctx)
	if err != nil {
		return outbox.Position{}, err
	}
	if r.parts.Begin != nil {
		if err := r.parts.Begin(ctx); err != nil {
			return outbox.Position{}, err
		}
	}
	if !has && !r.parts.Lost {
		if err := r.recordFirstStart(at); err != nil {
			return outbox.Position{}, err
		}
	}
	r.parts.Gate.accept(info.ID)
	if err := r.build(info.Flavor, at); err != nil {
		return outbox.Position{}, err
	}
	if err := r.proven(ctx); err != nil {
		return outbox.Position{}, err
	}
	entries, err := r.ownJournal()
	if err != nil {
		return outbox.Position{}, fmt.Errorf("read the journal: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(c outbox.Completion) bool { return c.LogOnly }) // the log shows them again
	if len(entries) > 0 {
		r.log.Info("writing acknowledgements of the last run to the table", zap.Int("rows", len(entries)))
		if err := r.Acks.Replay(ctx, entries); err != nil {
			return outbox.Position{}, err
		}
	}
	// Rows of any age, for every reason why the log may not show them: a first start, a gap that a crash interrupted, a
	// checkpoint that an operator moved while no relay was running.
	r.triggers.Full()
	return at, nil
}

// ownJournal takes over the rows of the journal and returns those that are in memory. Of a large journal most wait in it as they did before. Rows of
// tables that the configuration does not name stay in the journal, and one line for each of their tables says so: they are no refusal of the table, and another
// relay may serve it.
func (r *Relay) ownJournal() (entries []outbox.Completion, err error) {
	records, err := r.parts.State.Records()
	if err != nil {
		return nil, err
	}
	others := map[string]int{}
	for _, record := range records {
		rows, err := r.parts.State.Sent(record, nil)
		if err != nil {
			return nil, err
		}
		var left []outbox.Completion
		full := len(entries) >= r.settings.Ack.LeftBehind()
		for _, c := range rows {
			c.LogOnly = r.parts.LogOnly[c.Table]
			switch {
			case !c.LogOnly && !slices.Contains(r.settings.Fallback.Tables, c.Table):
				others[c.Table]++
			case full && !c.LogOnly:
				left = append(left, c)
			default:
				c.Since = time.Time{} // it is not known
				entries = append(entries, c)
			}
		}
		if len(left) > 0 {
			r.tracker.Leave(left)
			r.Acks.Left(record, left)
		}
	}
	r.tracker.Own(entries)
	r.logOthers(others)
	return entries, nil
}

func (r *Relay) logOthers(others map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(others)) {
		r.log.Warn("the journal has published rows of a table that the configuration does not name: their status is not written, and a relay "+
			"that serves the table publishes them again; to have it written, add the table under tables[] and restart",
			zap.String("table", name), zap.Int("rows", others[name]))
	}
}

// look asks the server until it answers.
func (r *Relay) look(ctx context.Context) (info server.Info, end outbox.Position, err error) {
	err = UntilAnswered(ctx, r.log, func() error {
		info, end, err = r.parts.Source.Look(ctx)
		return err
	})
	return info, end, err
}

// UntilAnswered repeats a question while the database is away or read-only: a start waits for it as a running relay does. Any
// other error is the caller's, and so is the end of ctx.
func UntilAnswered(ctx context.Context, log *zap.Logger, ask func() error) error {
	var class, before server.Class
	for n := 0; ; n++ {
		err := ask()
		before, class = class, server.Classify(err)
		switch {
		case err == nil && n > 0:
			log.Info("the database answers")
			return nil
		case err == nil || ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case !Away(err):
			return err
		case class == server.ReadOnly && class != before:
			log.Warn("the database takes no writes: waiting until it does", zap.Error(err))
		case class != server.ReadOnly && (n == 0 || before == server.ReadOnly):
			line := "the database does not answer: waiting for it"
			if server.Refused(err) {
				line = "the database refuses the login: trying again; a password_file is read at each try"
			}
			log.Warn(line, zap.Error(err))
		}
		if !outbox.Wait(ctx, databasePauses.Delay(n, exact), nil) {
			return ctx.Err()
		}
	}
}

// begin looks at the server and decides where this run begins, again while the lease gives no answer.
func (r *Relay) begin(ctx context.Context) (info server.Info, at outbox.Position, err error) {
	for n := 0; ; n++ {
		var end outbox.Position
		if info, end, err = r.look(ctx); err != nil {
			return info, at, err
		}
		at, err = r.startPosition(ctx, info, end)
		if !errors.Is(err, errNotFollowed) || !outbox.Wait(ctx, databasePauses.Delay(n, exact), nil) {
			return info, at, err
		}
		r.log.Warn("the lease does not have the new server yet: trying again", zap.Error(err))
	}
}

// startPosition decides where this run begins.
func (r *Relay) startPosition(ctx context.Context, info server.Info, end outbox.Position) (at outbox.Position, err error) {
	state := r.parts.State
	first := func(id server.ID, at outbox.Position, reason string) error { return state.Reset(id, at, 0, reason) }
	recorded, known := state.Source()
	at, has := state.Checkpoint()
	switch {
	case !has && r.parts.Lost:
		return end, r.recordGap(outbox.Gap{To: end, Cause: outbox.GapState}, info.ID, first)
	case !has: // start records it
		return end, first(info.ID, end, ReasonGap+string(outbox.GapFirstStart))
	case !known:
		return at, state.SetSource(info.ID)
	}
	relation, why, descends, err := r.relation(ctx, recorded, at, info, end)
	if err != nil {
		return at, err
	}
	gap := outbox.Gap{From: at, To: end, Cause: outbox.GapOperator}
	switch {
	case relation != server.Foreign:
		return at, nil // a failover or a shorter history is the reader's to find, in its own connection
	case descends:
		gap.Cause = outbox.GapFailover
		if err := r.follows(ctx, info.ID, end); err != nil {
			return at, err
		}
		r.log.Warn(failedOver, zap.String("why", why))
	case !r.parts.AcceptNewSource:
		return at, &RefusedError{Why: why}
	default:
		r.log.Warn("a new source was accepted by the operator", zap.String("why", why))
	}
	return end, r.recordGap(gap, info.ID, first)
}

// recordFirstStart records a first start, which needs no alarm, when the lease has its position: a relay that loses the lease before has
// read nothing. A crash before the record leaves the reason in the checkpoint's history alone.
func (r *Relay) recordFirstStart(at outbox.Position) error {
	gap := outbox.Gap{To: at, Cause: outbox.GapFirstStart, At: time.Now()}
	number, err := r.parts.State.AddGap(gap)
	if err != nil {
		return fmt.Errorf("record the gap: %w", err)
	}
	r.logGap(zap.InfoLevel, gap, number)
	return nil
}

// recordGap writes a gap, and then the source and the position at its end, durably. Only then does the reader continue: after a
// crash between the two writes the gap is found again.
func (r *Relay) recordGap(gap outbox.Gap, id server.ID, reset func(server.ID, outbox.Position, string) error) error {
	gap.At = time.Now()
	number, err := r.parts.State.AddGap(gap)
	if err == nil {
		err = reset(id, gap.To, ReasonGap+string(gap.Cause))
	}
	if err != nil {
		return fmt.Errorf("record the gap: %w", err)
	}
	r.logGap(zap.WarnLevel, gap, number)
	r.tellLost(gap.From, gap.To)
	return nil
}

func (r *Relay) logGap(level zapcore.Level, gap outbox.Gap, number uint64) {
	r.log.Log(level, "no usable checkpoint: reading from the binlog's end, sweeping older rows",
		zap.String("cause", string(gap.Cause)), zap.Stringer("from", gap.From), zap.Stringer("to", gap.To), zap.Uint64("gap", number))
}

// tellLost says what a gap means for tables without a sweep.
func (r *Relay) tellLost(from, to outbox.Position) {
	if len(r.parts.LogOnly) > 0 {
		r.log.Error("rows of tables without a status that lie in the gap are lost unless they are published by hand: no sweep finds them",
			zap.Strings("tables", slices.Sorted(maps.Keys(r.parts.LogOnly))), zap.Stringer("from", from), zap.Stringer("to", to))
	}
}

// build makes the stations of the flow, each complete when it is made: what one calls or is called by comes before it.
func (r *Relay) build(flavor outbox.Flavor, at outbox.Position) (err error) {
	r.triggers = fallback.NewTriggers(r.settings.Fallback)
	log := r.log.Named("pipeline")
	if r.tracker, err = tracker.New(flavor, at, r.triggers, log, r.reg); err != nil {
		return fmt.Errorf("the checkpoint cannot be read: %w; use `checkpoint set` to choose another position", err)
	}
	p := r.parts
	r.tracker.LeaveIn(p.State)
	acks := r.settings.Ack
	if flavor == outbox.MariaDB {
		acks.Pause = canal.OwnWritesPassed * 3 / 2
	}
	r.Acks = ack.New(acks, r.progress(), p.State, p.Rows, r.log.Named("ack"), r.reg)
	flow := r.settings.Pipeline
	if d, can := p.Sink.(sink.Delayer); can {
		flow.LongestDelay = d.LongestDelay()
	}
	send := dispatch.New(flow, r.tracker, r.triggers, p.Sink, r.Acks, p.Rows, log, r.reg)
	r.Flow = pipeline.New(r.tracker, send, recovery.New(r.tracker, send, r.triggers, p.Rows, p.Earlier, log, r.reg), r.triggers, r.reg)
	sweeps := r.settings.Fallback
	sweeps.Ordered = r.settings.Pipeline.Ordered
	r.Sweeper = fallback.New(sweeps, r.triggers, r.Flow, p.Rows, p.Source, r.log.Named("sweep"), r.reg)
	r.Flow.Pause(p.State.Pause() != nil)
	if p.Again != nil {
		r.Redeliver = redelivery.New(r.settings.Again, p.Again.Rows, r.Flow, p.Again.Memory, r.log.Named("redelivery"), r.reg)
	}
	return nil
}

// Away reports whether a start waits after this answer: for a database that does not answer, for one that is read-only, as a primary is at
// the begin of a failover, and for one that does not accept the password, as while that is changed.
func Away(err error) bool {
	if server.Refused(err) {
		return true
	}
	switch server.Classify(err) {
	case server.Lost, server.Busy, server.Transient, server.ReadOnly:
		return true
	}
	return false
}
