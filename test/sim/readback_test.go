package sim

import (
	"context"
	"slices"
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
	if left := i.disk.sign.last; left != nil {
		i.settledAt = left.SettledAt
		if i.disk.sign.old {
			i.aliveAt = left.AliveAt
		}
	}
	i.looked, i.looks, i.known, i.read = map[string]int{}, map[string]time.Duration{}, map[string]time.Duration{}, map[*row]bool{}
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

// Read implements sink.Reader. What is stored while it reads is not in the answer.
func (s *sinkModel) Read(ctx context.Context, topic string, from, to time.Time, each func(sink.Record) error) (sink.Extent, error) {
	w := s.i.w
	w.mu.Lock()
	last, again := s.i.looks[topic]
	delete(s.i.looks, topic)
	w.mu.Unlock()
	if err := s.probe(ctx, "probe of a topic", hash(topic)); err != nil { // topics are read at the same time
		return sink.Extent{}, err
	}
	w.mu.Lock()
	at := w.at()
	var found []record
	for _, r := range w.records {
		if when := w.began.Add(r.at); r.row.topic == topic && !when.Before(from) && when.Before(to) {
			found = append(found, r)
		}
	}
	if again && at-last < still {
		w.violation("read back", "%s is looked at again after %v", topic, at-last)
	}
	s.i.looked[topic]++
	w.note(s.i.life, "look", "", topic+" "+from.Sub(w.began).String()+" "+to.Sub(w.began).String(), len(found))
	took := w.dice("read", hash(topic)).between(time.Millisecond, 20*time.Millisecond)
	w.mu.Unlock()
	if err := sleep(ctx, took); err != nil {
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
	s.i.looks[topic] = at
	w.mu.Unlock()
	return sink.Extent{}, nil
}

// Committed implements sink.CommittedReader.
func (s *sinkModel) Committed(ctx context.Context, topic string) error {
	w := s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { delete(s.i.looks, topic); delete(s.i.looked, topic) }() // the next look begins anew
	if at, is := s.i.looks[topic]; is && ctx.Err() == nil {
		if s.i.looked[topic] < 2 {
			w.violation("read back", "%s was looked at once: what a broker stores late is not seen", topic)
		}
		s.i.known[topic] = at
		w.note(s.i.life, "read back", "", topic, 0)
	}
	return nil
}

// checkReadBack checks that a row is not sent of which the process has seen a copy, stored within the time in which the dead process may have
// sent it. Callers hold mu.
func (w *world) checkReadBack(i *incarnation, r *row, m *outbox.Message) {
	known, is := i.known[r.topic]
	if m.Path != outbox.PathBinlog && m.Status != outbox.Sending {
		return // a row that is PENDING may have been set back by a person, so neither sweep nor timer looks for it
	}
	if f := r.of(i.life); f.handed || f.answered {
		return // another time, by the process that has sent it before
	}
	if !is || r.logOnly || r.touched || time.Since(i.began) > w.plan.readBack.Claims {
		return
	}
	dead := i.predecessor
	for _, c := range slices.Backward(w.records) { // its last copy: one before may have been answered, with a failure
		if c.row != r || dead == nil || c.life != dead.life || c.path == outbox.PathRedelivery {
			continue
		}
		from, to := i.settledAt.Add(-w.plan.readBack.Before), dead.diedAt+w.plan.readBack.After-2*w.plan.readBack.Every
		if !i.aliveAt.IsZero() { // the last sign was lost, and with it the end of the period
			to = min(to, i.aliveAt.Sub(w.began)+w.plan.readBack.After)
		}
		// A sweep that had no answer for so long that what came after it was settled.
		early := c.path != outbox.PathBinlog && w.began.Add(c.at).Before(from)
		if f := r.of(dead.life); early || string(c.body) != string(m.Body) || c.at > known || c.at > to || f.forgiven || r.of(i.life).forgiven || c.told {
			return
		}
		w.violation("P3", "%s is sent again though it was read back", name(r.Identity))
		return
	}
}
