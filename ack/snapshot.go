package ack

import (
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Snapshot is what an operator must know of the completions, for status. The counts begin with the process: what the tables hold
// from earlier runs is not in them.
type Snapshot struct {
	Pending int // completions that their table has neither written nor refused
	Locked  int // of these, rows that another session had locked when they were tried last

	// Failed counts the rows that ended as FAILED; NewestFailed is the last of them, nil when there is none. The row may have been
	// set back since: the tables say how many are FAILED now.
	Failed       int
	NewestFailed *Problem

	// Unwritable counts the published rows that their table refuses to show as SENT. They stay in the journal until a restart
	// writes them. NewestUnwritable is the last of them, nil when there is none; its Reason is the server's answer.
	Unwritable       int
	NewestUnwritable *Problem
}

// Problem is one row that needs a person.
type Problem struct {
	outbox.Identity
	Class  outbox.Class // of the refusal that made it FAILED; ClassNone for an unwritable row
	Reason string       // the broker's or the server's words; never a body or a credential
	At     time.Time    // by the relay's clock
}

// Snapshot returns the present state.
func (a *Acker) Snapshot() Snapshot {
	s := a.problems.snapshot()
	s.Pending, s.Locked = a.Pending(), a.queues.lockedRows()
	return s
}

// problems remembers what Snapshot shows of single rows.
type problems struct {
	mu   sync.Mutex
	seen Snapshot
}

func (p *problems) failed(c outbox.Completion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Failed++
	p.seen.NewestFailed = &Problem{Identity: c.Identity, Class: c.Class, Reason: c.Reason, At: time.Now()}
}

func (p *problems) unwritable(e outbox.WriteError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Unwritable++
	p.seen.NewestUnwritable = &Problem{Identity: e.Identity, Reason: e.Reason, At: time.Now()}
}

func (p *problems) snapshot() Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}
