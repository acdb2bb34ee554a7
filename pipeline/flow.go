package pipeline

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is the sweep's side of the pipeline.

// Offered returns the position up to which every transaction was offered: what the registry does not own below it will
// not come from the log.
func (p *Pipeline) Offered() outbox.Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offered
}

// Changed returns a channel that is closed when Offered, the reader's state or the room for messages changes.
func (p *Pipeline) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters++
	return p.changed
}

// ReaderUp reports whether a stream is open.
func (p *Pipeline) ReaderUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readerUp
}

// BackPressure reports whether the reader waits for room: no progress of Offered is then no sign of trouble in the log.
func (p *Pipeline) BackPressure() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.room()
}

// BreakerClosed reports whether the broker takes messages.
func (p *Pipeline) BreakerClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.breaker.state == breakerClosed
}

// TopicSuspended reports whether rows of a topic are to be left alone for now.
func (p *Pipeline) TopicSuspended(topic string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.topicSuspended(topic)
}

// ActivityEpoch changes, at the latest when the row has no owner any more, whenever a row that the log has shown may be left PENDING
// and due to the sweep: it was deferred, its completion was not that it was sent, or part of the log is passed over. As long as it
// stays the same, a row that a sweep finds was not shown as inserted, or is older than that.
func (p *Pipeline) ActivityEpoch() uint64 { return p.activity.Load() }

// Missed counts rows that a sweep has published though the log never showed them as inserted.
func (p *Pipeline) Missed(rows int) { p.metrics.deferred(outbox.CauseMissed, rows) }

// countLet counts what is deferred. Rows that wait for their time show it when a sweep finds them, and one that does not begin
// as PENDING is somebody's to change.
func (p *Pipeline) countLet(cause outbox.Cause, rows int) {
	p.metrics.deferred(cause, rows)
	switch cause {
	case outbox.CauseNotDue, outbox.CauseWaiting, outbox.CauseStatus:
	default:
		p.activity.Add(1)
	}
}

// Reserve takes ownership for the sweep and returns the rows that nobody owned.
func (p *Pipeline) Reserve(rows []outbox.Candidate) []outbox.Candidate {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := make([]outbox.Candidate, 0, len(rows))
	for _, c := range rows {
		if p.registry.reserve(c.Identity, &entry{id: c.Identity}) {
			free = append(free, c)
		}
	}
	return free
}

// Release gives rows back that were reserved by the sweep and not published.
func (p *Pipeline) Release(ids []outbox.Identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if e := p.registry[id]; e != nil && e.state == reserved && e.seq == 0 {
			delete(p.registry, id)
		}
	}
}

// Publish hands rows to the sink that the sweep has reserved, claimed and read back. It blocks while there is no room in the
// sweep's half of what may be in flight, and of what may wait for its status, so that a backlog in the table leaves fresh rows
// their latency. When the context ends first, the rest stays claimed and reserved by the caller, which releases it.
func (p *Pipeline) Publish(ctx context.Context, rows []*outbox.Message) error {
	for len(rows) > 0 {
		if err := p.await(ctx, p.sweepRoom); err != nil {
			return err
		}
		n := min(len(rows), chunk)
		now := time.Now()
		ready := make([]*outbox.Message, 0, n)
		for i, m := range rows[:n] {
			if i > 0 && !p.sweepRoom() {
				n = i
				break
			}
			e := p.registry[m.Identity]
			if e == nil || e.state != reserved || e.seq != 0 {
				p.metrics.bugs.Inc()
				continue
			}
			e.message, e.size = m, m.Size()
			p.launch(e, now)
			ready = append(ready, m)
		}
		p.mu.Unlock()
		p.send(ready)
		rows = rows[n:]
	}
	return nil
}

func (p *Pipeline) sweepRoom() bool {
	return p.room() && (p.sweepFlight == 0 || p.sweepFlight < p.cfg.MaxInFlight/2) &&
		(p.sweepFlight+p.sweepUnwritten == 0 || p.sweepFlight+p.sweepUnwritten < p.cfg.MaxUnwritten/2)
}

// Unreadable takes the completion on a row that the sweep has claimed and that cannot become a message.
func (p *Pipeline) Unreadable(s outbox.Completion) {
	p.mu.Lock()
	e := p.registry[s.Identity]
	if e == nil || e.state != reserved || e.seq != 0 {
		p.mu.Unlock()
		return
	}
	s.Entry = e
	s = p.answer(e, s)
	p.mu.Unlock()
	p.acks.Add([]outbox.Completion{s})
}

// StillSince is the moment of the last answer when messages are in the sink's hands, the breaker is closed and none of them
// has had an answer since; zero otherwise. The breaker opens after seconds of silence, so an old moment means that this
// process is stuck.
func (p *Pipeline) StillSince() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight == 0 || p.breaker.state != breakerClosed {
		return time.Time{}
	}
	return p.quietSince
}
