package tracker

import (
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// progress is how far the log was offered and how far it is settled. Its lock guards the registry too.
type progress struct {
	activity *Activity

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced when goroutines wait
	waiters    int
	lowWater   *lowWater
	saved      outbox.Position // what Checkpoint returned last
	generation uint64          // of the low-water mark: raised by each Reset
	offered    outbox.Position
	kept       kept
}

// Offered returns the position up to which every transaction was offered: a row below it without an owner will not come from the
// log.
func (p *progress) Offered() outbox.Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offered
}

// SetOffered says where the reader is: behind a transaction that was taken over whole, or at the beginning of a stream.
func (p *progress) SetOffered(at outbox.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offered = at
	p.broadcast()
}

// Idle records that the server has nothing behind a position: everything before was offered.
func (p *progress) Idle(at outbox.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.offered.Compare(at) < 0 {
		p.offered = at
		p.broadcast()
	}
	p.lowWater.idle(at)
}

// Reset sets a new low-water mark: after a gap, a failover or an operator's move. Open transactions are forgotten; their rows
// continue. Reset returns the generation that begins: a checkpoint that Checkpoint returned before belongs to an older one.
func (p *progress) Reset(flavor outbox.Flavor, at outbox.Position) (generation uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := outbox.ParseGTIDSet(flavor, at.GTIDs); err != nil {
		return 0, err
	}
	p.kept.forget(p.lowWater)
	if err := p.lowWater.reset(flavor, at); err != nil {
		return 0, err
	}
	p.offered, p.saved = at, at
	p.generation++
	p.activity.Disturb() // for what the log showed, and what it will not show
	p.broadcast()
	return p.generation, nil
}

// Rewind sets the offered position back to the low-water mark and returns it: the transactions behind it are offered again. Rows
// in flight then settle their transactions. The generation stays, because an operator did not choose the position.
func (p *progress) Rewind() (outbox.Position, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.lowWater.position()
	p.offered = at
	p.activity.Disturb()
	p.broadcast()
	p.kept.forget(p.lowWater)
	return at, p.lowWater.reset(p.lowWater.set.Flavor(), at)
}

// Generation counts how often the position was set elsewhere, by Reset.
func (p *progress) Generation() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation
}

// LowWater returns the low-water mark without its GTID set.
func (p *progress) LowWater() outbox.Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lowWater.low
}

// Checkpoint returns the low-water mark with its generation, and whether it moved since the last call.
func (p *progress) Checkpoint() (at outbox.Position, generation uint64, moved bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept.pass(p.lowWater)
	p.kept.saved, p.kept.passed = append(p.kept.saved, p.kept.passed...), nil
	if p.lowWater.low == (outbox.Position{File: p.saved.File, Offset: p.saved.Offset}) {
		return p.saved, p.generation, false
	}
	p.saved = p.lowWater.position()
	return p.saved, p.generation, true
}

// Barrier says where the log ended when a stream was opened.
func (p *progress) Barrier(end outbox.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept.barrier = end
	p.kept.pass(p.lowWater)
}

// Passed returns the rows without a status whose transactions lie before the last checkpoint that was returned: the caller calls it
// when that checkpoint is durable, takes them out of the journal, and then calls Written.
func (p *progress) Passed() (list []outbox.Completion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.kept.saved {
		list = append(list, outbox.Completion{Identity: e.id, Action: outbox.ActionMarkSent, LogOnly: true, Entry: e})
	}
	p.kept.saved = nil
	return list
}

// Kept counts the rows that were sent and whose transactions wait for others.
func (p *progress) Kept() int { return int(p.kept.open.Load()) }

// Changed returns a channel that is closed when rows were written or the log continued.
func (p *progress) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters++
	return p.changed
}

// broadcast wakes the goroutines that wait. Callers hold mu.
func (p *progress) broadcast() {
	if p.waiters > 0 {
		close(p.changed)
		p.changed = make(chan struct{})
		p.waiters = 0
	}
}
