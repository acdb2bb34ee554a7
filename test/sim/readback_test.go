package sim

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// This file is the read-back after a kill: what internal/app does around a relay for it, the topics as a reader sees them, and the check that no
// row is sent again whose copy was seen.

// still is the least time between two looks at a topic.
const still = 300 * time.Millisecond

// drawReadBack draws whether a plan's processes leave signs of life and read back.
func (p *plan) drawReadBack(seed uint64) {
	p.stamped = newDice(seed, "stamped").chance(0.5)
	d := newDice(seed, "read back")
	if p.team != nil || !d.chance(0.6) {
		return
	}
	claims := 2*p.settings.Fallback.ClaimTimeout + time.Second
	p.readBack = &relay.LifeSettings{
		Every: d.between(50*time.Millisecond, 300*time.Millisecond), Before: 200 * time.Millisecond, After: 2 * time.Second, Claims: claims, MaxBytes: 1 << 20, MaxTime: 5 * time.Second,
	}
}

// signState is the sign of life on a disk, and the one before.
type signState struct {
	last, before *outbox.Life
	old          bool // the last one was lost
}

// signs is relay.Signs of one process.
type signs struct{ i *incarnation }

// Read implements relay.Signs.
func (s signs) Read() (outbox.Life, bool, error) {
	s.i.w.mu.Lock()
	defer s.i.w.mu.Unlock()
	if left := s.i.disk.sign.last; left != nil {
		return *left, true, nil
	}
	return outbox.Life{}, false, nil
}

// Write implements relay.Signs.
func (s signs) Write(l outbox.Life) error {
	s.i.w.mu.Lock()
	defer s.i.w.mu.Unlock()
	if !s.i.dead {
		s.i.disk.sign.last, s.i.disk.sign.before = &l, s.i.disk.sign.last
	}
	return nil
}

// Remove implements relay.Signs.
func (s signs) Remove() error {
	s.i.w.mu.Lock()
	defer s.i.w.mu.Unlock()
	if !s.i.dead {
		s.i.disk.sign.last, s.i.disk.sign.before = nil, nil
	}
	return nil
}

// loseSign is the death of a process: the file is not synced, so the sign before may be there. Callers hold mu.
func (d *disk) loseSign(dice *dice) {
	if d.sign.old = d.sign.before != nil && dice.chance(0.3); d.sign.old {
		d.sign.last = d.sign.before
	}
}

// runAlive runs a relay that leaves signs of life.
func (i *incarnation) runAlive(state *state, s *sinkModel) error {
	settings := i.w.plan.readBack
	if settings == nil {
		return i.relayOn(state, s, s, i.stateLost(), nil, nil).Run(i.ctx)
	}
	i.w.mu.Lock()
	i.reaches = i.life
	if left := i.disk.sign.last; left != nil {
		i.settledAt = left.SettledAt
		if i.disk.sign.old {
			i.aliveAt = left.AliveAt
		}
		if i.reaches = i.predecessor.reaches; i.reaches == 0 { // it did not come to its signs
			i.reaches = i.predecessor.life
		}
	}
	i.looks, i.queued, i.known, i.unread, i.read = map[look]looked{}, map[string]time.Duration{}, map[look]time.Duration{}, map[string]bool{}, map[*row]bool{}
	i.w.mu.Unlock()
	alive := relay.NewLife(relay.LifeParts{
		Signs: signs{i}, Source: source{i}, Checkpoint: state.Checkpoint, Reader: s, Names: func(string) bool { return true },
	}, *settings, i.log, registerer{i})
	i.w.mu.Lock()
	i.alive = alive
	i.w.mu.Unlock()
	own := i.relayOn(state, s, s, i.stateLost(), nil, alive.Earlier())
	ctx, stop := context.WithCancel(context.WithoutCancel(i.ctx))
	var signing sync.WaitGroup
	signing.Go(func() { alive.Run(ctx, own) })
	err := own.Run(i.ctx)
	stop()
	signing.Wait()
	if err != nil {
		return err
	}
	return alive.End(own)
}

var _ sink.CommittedReader = (*sinkModel)(nil)

// look is of a topic, for a period that begins then.
type look struct {
	topic string
	from  time.Time
}

// looked is a look that came to its end, and the context of its reading.
type looked struct {
	at  time.Duration
	ctx context.Context
}

// Read implements sink.Reader. What is stored while it reads is not in the answer, nor what has not come into its queue.
func (s *sinkModel) Read(ctx context.Context, topic string, from, to time.Time, each func(sink.Record) error) (sink.Extent, error) {
	w, this := s.i.w, look{topic, from}
	w.mu.Lock()
	last := s.i.looks[this]
	again := last.ctx == ctx // else a reading begins again
	queued, is := s.i.queued[topic]
	s.i.lookedAt = cmp.Or(s.i.lookedAt, w.at())
	w.mu.Unlock()
	if err := s.probe(ctx, "probe of a topic", hash(topic)); err != nil { // topics are read at the same time
		s.hinder()
		return sink.Extent{}, err
	}
	w.mu.Lock()
	at := w.at()
	var found []record
	for _, r := range w.records {
		if when := w.began.Add(r.at); r.row.topic == topic && !when.Before(from) && when.Before(to) && r.queued <= at {
			found = append(found, r)
		}
	}
	if again && at-last.at < still {
		w.violation("read back", "%s is looked at again after %v", topic, at-last.at)
	}
	w.note(s.i.life, "look", "", topic+" "+from.Sub(w.began).String()+" "+to.Sub(w.began).String(), len(found))
	took := w.dice("read", hash(topic)).between(time.Millisecond, 20*time.Millisecond)
	w.mu.Unlock()
	if err := sleep(ctx, took); err != nil {
		s.hinder()
		return sink.Extent{}, err
	}
	for _, r := range found {
		w.mu.Lock()
		s.i.read[r.row] = true
		w.mu.Unlock()
		if err := each(sink.Record{MessageID: r.row.MessageID, Body: r.body, At: w.began.Add(r.at)}); err != nil {
			return sink.Extent{}, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if is && again {
		s.i.known[this] = queued
	}
	s.i.looks[this] = looked{at, ctx}
	return sink.Extent{}, nil
}

// hinder notes that a topic may not be known as far as it should be.
func (s *sinkModel) hinder() {
	s.i.w.mu.Lock()
	defer s.i.w.mu.Unlock()
	s.i.hindered = true
}

// Committed implements sink.CommittedReader.
func (s *sinkModel) Committed(ctx context.Context, topic string) error {
	w := s.i.w
	w.mu.Lock()
	at := w.at()
	complete := at
	for _, r := range w.records {
		if r.row.topic == topic {
			complete = max(complete, r.queued)
		}
	}
	w.mu.Unlock()
	err := cmp.Or(ctx.Err(), sleep(ctx, complete-at))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		s.i.hindered = true
		return err
	}
	s.i.queued[topic] = max(s.i.queued[topic], at)
	w.note(s.i.life, "complete", "", topic, 0)
	return nil
}

// checkReadBack checks that a row is not sent of which the process has seen a copy or should have, stored within the time in which a dead
// process may have sent it. Callers hold mu.
func (w *world) checkReadBack(i *incarnation, r *row, m *outbox.Message) {
	left := r.leftByWindow(i.life) && w.orderKey(r) == "" && w.wasLocked(i, r) // it was looked for before
	if m.Path != outbox.PathBinlog && m.Status != outbox.Sending && !left && !m.Untouched {
		return // a row that is PENDING may have been set back by a person, so neither sweep nor timer looks for it
	}
	if f := r.of(i.life); f.handed || f.answered || f.forgiven {
		return // another time, by the process that has sent it before
	}
	if w.plan.readBack == nil || r.logOnly || r.touched || i.unread[r.topic] {
		return
	}
	var last *record // one before it may have been answered, with a failure
	for n := range w.records {
		if c := &w.records[n]; c.row == r && c.path != outbox.PathRedelivery {
			last = c
		}
	}
	if last == nil || last.life < i.reaches || last.life == i.life {
		return
	}
	if f := r.of(last.life); string(last.body) != string(m.Body) || f.forgiven || last.told || !w.inReach(i, last) {
		return
	}
	from := i.settledAt.Add(-w.plan.readBack.Before)
	for l, known := range i.known {
		if l.topic == r.topic && last.at > known && !l.from.Before(from) {
			return // it is stored since
		}
	}
	w.violation("P3", "%s is sent again though it was read back", name(r.Identity))
}

// inReach reports whether a process reads the period in which a copy was stored. Callers hold mu.
func (w *world) inReach(i *incarnation, c *record) bool {
	settings, dead := w.plan.readBack, i.predecessor
	to := w.incarnations[c.life-1].diedAt + settings.After - 2*settings.Every
	if !i.aliveAt.IsZero() { // the last sign was lost, and with it the end of the period
		to = min(to, i.aliveAt.Sub(w.began)+settings.After)
	}
	switch {
	case c.at > to:
		return false
	case c.life == dead.life && c.path == outbox.PathBinlog:
		return true
	}
	return c.at >= w.setBackAt
}
