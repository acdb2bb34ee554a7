package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// reader is a relay.Reader: it follows the log as canal.Reader does, connection by connection.
type reader struct {
	i       *incarnation
	handler canal.Handler
	again   chan struct{}

	pos outbox.Position // where the next stream begins; GTIDs is in set
	set *outbox.GTIDSet // nil: by file and offset
}

const heartbeat = time.Second + 1237*time.Nanosecond

var errCut = errors.New("the stream was cut")

// Run implements relay.Reader.
func (r *reader) Run(ctx context.Context, from outbox.Position) error {
	r.goTo(from)
	r.i.w.mu.Lock()
	r.i.w.known = r.i.w.known || r.i.team != nil
	if at := r.i.disk.aside; at != nil {
		r.i.disk.aside = nil
		r.i.w.passOver(r.i.disk, *at, firstStart)
	}
	r.i.w.mu.Unlock()
	for ctx.Err() == nil {
		err := r.attempt(ctx)
		var foreign *canal.ForeignSourceError
		if errors.As(err, &foreign) {
			return err
		}
		r.i.w.mu.Lock()
		wait := r.i.w.dice("reconnect", uint64(r.i.life)).between(20*time.Millisecond, 400*time.Millisecond)
		r.i.w.mu.Unlock()
		outbox.Wait(ctx, wait, r.again)
	}
	return nil
}

// LookAgain implements relay.Reader.
func (r *reader) LookAgain() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

func (r *reader) goTo(pos outbox.Position) { r.pos, r.set = pos, nil }

func (r *reader) from() outbox.Position {
	from := r.pos
	if r.set != nil {
		from.GTIDs = r.set.String()
	}
	return from
}

// attempt looks at the server, and opens and reads one stream.
func (r *reader) attempt(ctx context.Context) error {
	w := r.i.w
	if _, err := (rows{r.i}).call(ctx, "connect"); err != nil {
		return err
	}
	recorded, _ := r.i.state.Source()
	checkpoint, _ := r.i.state.Checkpoint()
	w.mu.Lock()
	info, end := w.info(), w.end()
	w.mu.Unlock()
	relation, why := server.CheckIdentity(recorded, checkpoint, info, end)
	switch relation {
	case server.Foreign:
		return &canal.ForeignSourceError{Recorded: recorded, Now: info.ID, Why: why}
	case server.Shorter:
		return r.gap(ctx, end, outbox.GapShorter)
	case server.Failover:
		r.goTo(outbox.Position{GTIDs: checkpoint.GTIDs})
	}
	w.mu.Lock()
	readable := w.readable(r.from())
	w.mu.Unlock()
	if !readable {
		return r.gap(ctx, end, outbox.GapPurged)
	}
	if r.set == nil && info.GTID {
		set, err := outbox.ParseGTIDSet(info.Flavor, r.pos.GTIDs)
		if err != nil {
			return err
		}
		r.set = set
	}
	return r.follow(ctx, info.ID, end, relation == server.Failover)
}

func (r *reader) gap(ctx context.Context, end outbox.Position, cause outbox.GapCause) error {
	resume, err := r.handler.Gap(ctx, outbox.Gap{From: r.from(), To: end, Cause: cause, At: time.Now()})
	if err == nil {
		r.goTo(resume)
	}
	return err
}

// follow opens a stream and reads it to its end.
func (r *reader) follow(ctx context.Context, id server.ID, end outbox.Position, failover bool) error {
	w := r.i.w
	from := r.from()
	w.mu.Lock()
	if r.i.source != id || r.i.reached.Compare(from) < 0 {
		r.i.reached, r.i.source = from, id
	}
	w.note(r.i.life, "connected", "", fmt.Sprintf("%v %s, zone to %v", from, from.GTIDs, end), 0)
	next := w.startIndex(from)
	w.mu.Unlock()
	if err := r.handler.Connected(ctx, from, end, id, failover); err != nil {
		return err
	}
	err := r.stream(ctx, id, next)
	r.handler.Disconnected(err)
	w.mu.Lock()
	w.note(r.i.life, "disconnected", "", err.Error(), 0)
	w.mu.Unlock()
	return err
}

// stream offers what is behind the first next entries of the log until something ends it; the error is never nil.
func (r *reader) stream(ctx context.Context, id server.ID, next int) error {
	w := r.i.w
	for {
		r.i.awaitWake()
		w.mu.Lock()
		d := w.dice("stream", uint64(r.i.life))
		_, down := r.i.databaseDown()
		broken := down || r.i.dead || w.id != id || w.at() < w.plan.healed && d.chance(w.plan.cuts)
		var e *entry
		if next < len(w.log) {
			e = w.log[next]
		}
		grown := w.grown
		purged := next < w.firstLog
		stall, stalled := covering(w.plan.stalls, w.at())
		w.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case broken:
			return errCut
		case stalled:
			if err := sleep(ctx, stall.to-w.at()+d.between(1, time.Millisecond)); err != nil {
				return err
			}
			continue
		case e == nil:
			if err := r.idle(ctx, grown, next); err != nil {
				return err
			}
			continue
		case purged:
			return errors.New("the next file was purged") // found out by the next attempt
		}
		if err := sleep(ctx, d.between(20*time.Microsecond, 600*time.Microsecond)); err != nil {
			return err
		}
		if err := r.offer(ctx, e); err != nil {
			return err
		}
		next++
	}
}

// idle waits for more, with a heartbeat when there is none behind the first next entries.
func (r *reader) idle(ctx context.Context, grown <-chan struct{}, next int) error {
	timer := time.NewTimer(heartbeat)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-grown:
		return nil
	case <-timer.C:
	}
	w := r.i.w
	w.mu.Lock()
	quiet, end := !r.i.dead && next == len(w.log), w.end()
	if quiet && r.i.reached.Compare(end) < 0 {
		r.i.reached = end
	}
	w.mu.Unlock()
	if quiet {
		r.handler.Idle(outbox.Position{File: end.File, Offset: end.Offset})
	}
	return nil
}

// offer passes one transaction to the relay, built again each time.
func (r *reader) offer(ctx context.Context, e *entry) error {
	w := r.i.w
	if r.i.step("before offer") {
		return errDead
	}
	rows, err := r.pieces(ctx, e)
	if err != nil {
		return err
	}
	w.mu.Lock()
	r.i.silent = false
	txn := &outbox.Txn{End: e.end, GTID: e.gtid, CommittedAt: e.at, Deferred: e.deferred}
	for _, row := range rows {
		f := row.of(r.i.life)
		if !f.offered {
			f.offered, f.offeredAt, f.behind = true, time.Now(), w.behindEarly(r.i, row)
		}
		if row.status != outbox.Sending {
			f.taken = time.Now().Add(1) // behind those of its own transaction
		}
		f.forgiven = false
		txn.Messages = append(txn.Messages, row.logged())
	}
	for _, row := range e.left {
		if f := row.of(r.i.life); f.leftAt.IsZero() {
			f.leftAt = time.Now()
		}
	}
	r.i.deferrals += len(e.deferred)
	r.i.reached = e.end
	w.note(r.i.life, "offer", "", e.end.String(), len(e.rows))
	w.mu.Unlock()
	if err := r.handler.Offer(ctx, txn); err != nil {
		return err
	}
	r.pos = outbox.Position{File: e.end.File, Offset: e.end.Offset}
	if r.set != nil {
		r.set.Add(e.gtid)
	}
	return nil
}
