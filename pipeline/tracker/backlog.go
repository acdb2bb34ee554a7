package tracker

import (
	"sync/atomic"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// backlog counts the rows that are in memory behind the sink.
type backlog struct {
	unwritten atomic.Int64 // rows with a completion that the table has not
	swept     atomic.Int64 // of these, rows that the sweep found
	failing   atomic.Int64 // bytes of Unwritten
	leftRows  atomic.Int64 // rows whose completion waits in the journal alone
	aside     int          // rows that their tables refuse, and that unwritten does not count. Guarded by Tracker.mu
}

// Complete passes rows on to ack: their completion is made, and the message is not needed any more.
func (b *backlog) Complete(entries ...*Entry) {
	for _, e := range entries {
		e.Message = nil
		if e.Swept() {
			b.swept.Add(1)
		}
	}
	b.unwritten.Add(int64(len(entries)))
}

// written ends what Complete and Carry began. Callers hold Tracker.mu.
func (b *backlog) written(e *Entry, m *outbox.Message) {
	if m != nil {
		b.failing.Add(-int64(m.Size()))
	}
	if e.aside {
		e.aside = false
		b.aside--
		return
	}
	b.unwritten.Add(-1)
	if e.Swept() {
		b.swept.Add(-1)
	}
}

// Unwritten is the window of the rows with a completion that the table has not, without those set aside (Refused). Its bytes are those of messages that wait for the
// failed-message log; the other messages are not needed any more.
func (b *backlog) Unwritten() Window {
	return Window{Rows: int(b.unwritten.Load()), Bytes: int(b.failing.Load()), Swept: int(b.swept.Load())}
}

// Left is the number of rows that wait in the journal alone.
func (b *backlog) Left() int { return int(b.leftRows.Load()) }

// Carry puts the message of a row that failed into its completion: the failed-message log needs it.
func (b *backlog) Carry(c *outbox.Completion, m *outbox.Message) {
	c.Message = m
	b.failing.Add(int64(m.Size()))
}
