package ack

import (
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Snapshot is the state of the completions, for status. The counts start with the process: earlier rows in the tables are not
// included.
type Snapshot struct {
	Pending int // completions that their table has neither written nor refused
	Locked  int // of these, rows that another session had locked at the last attempt

	Retried int // refused messages that were scheduled for another attempt

	// Failed counts the rows that ended as FAILED; NewestFailed is the last of them, nil when there is none. The row may have
	// been reset since: the tables have the current number.
	Failed       int
	NewestFailed *Problem

	// Unwritable counts the published rows that their table refuses to show as SENT now. They stay in the journal until the table
	// accepts them. NewestUnwritable is the one that was tried last, nil when there is none; its Reason is the server's error.
	Unwritable       int
	NewestUnwritable *Problem
}

// Problem is one row that needs an operator.
type Problem struct {
	outbox.Identity
	Class  outbox.Class // of the refusal that made it FAILED; ClassNone for an unwritable row
	Reason string       // the broker's or the server's text; never a body or a credential
	At     time.Time    // by the relay's clock
}

// Snapshot returns the current state.
func (a *Acker) Snapshot() Snapshot {
	s := a.problems.snapshot()
	s.Pending, s.Locked = a.Pending(), a.queues.count(locked)
	s.Unwritable, s.NewestUnwritable = a.queues.count(refused), a.queues.newestRefused()
	return s
}

// Settling returns how many rows of a table are sent and show it soon: a count of the table has them as PENDING. Rows whose statuses
// fail, or wait for a lock, do not count.
func (a *Acker) Settling(table string) int { return a.queues.settling(table) }

// problems has the state of single rows for Snapshot.
type problems struct {
	mu     sync.Mutex
	seen   Snapshot
	unsent map[string]unsentRefused // by table
}

func (p *problems) retried() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Retried++
}

func (p *problems) failed(c outbox.Completion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Failed++
	p.seen.NewestFailed = &Problem{Identity: c.Identity, Class: c.Class, Reason: c.Reason, At: time.Now()}
}

// countUnsent counts refused statuses of rows that were not sent. It returns the number for the next log line; 0 when the last
// line is too recent.
func (p *problems) countUnsent(table string, rows int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsent == nil {
		p.unsent = map[string]unsentRefused{}
	}
	u := p.unsent[table]
	u.rows += rows
	n := u.rows
	if !u.reported.IsZero() && time.Since(u.reported) < reportEvery {
		n = 0
	} else {
		u = unsentRefused{reported: time.Now()}
	}
	p.unsent[table] = u
	return n
}

func (p *problems) snapshot() Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}
