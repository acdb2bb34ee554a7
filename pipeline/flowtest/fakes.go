package flowtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Sink answers each message by a function, on a goroutine of its own, in order; a nil function leaves them unanswered.
type Sink struct {
	mu      sync.Mutex
	Answer  func(*outbox.Message) outbox.Outcome
	Sent    []string // ids in the order of their sends
	Hands   map[string]*outbox.Message
	Done    func([]sink.Result)
	Down    bool // Probe fails
	Fenced  bool // Probe fails because the lease is not held
	Missing map[string]bool
}

func (f *Sink) Send(batch []*outbox.Message, done func([]sink.Result)) {
	f.mu.Lock()
	f.Done = done
	var results []sink.Result
	for _, m := range batch {
		f.Sent = append(f.Sent, m.ID)
		f.Hands[m.ID] = m
		if f.Answer != nil {
			results = append(results, sink.Result{Message: m, Outcome: f.Answer(m)})
		}
	}
	f.mu.Unlock()
	if len(results) > 0 {
		go done(results)
	}
}

func (f *Sink) Probe(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.Fenced:
		return sink.ErrMayNot
	case f.Down:
		return errors.New("connection refused")
	}
	return nil
}

func (f *Sink) Topics(_ context.Context, topics []string) (map[string]error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	faults := map[string]error{}
	for _, t := range topics {
		if f.Missing[t] {
			faults[t] = errors.New("unknown topic")
		}
	}
	return faults, nil
}

func (f *Sink) Close(context.Context) error { return nil }

func (f *Sink) Set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *Sink) IDs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.Sent...)
}

// Acks remembers the completions.
type Acks struct {
	mu     sync.Mutex
	List   []outbox.Completion
	cannot map[string]bool // tables whose statuses cannot be written
	stays  int             // rows of these
}

// Set says which tables are stuck, and how many rows wait there.
func (f *Acks) Set(tables map[string]bool, rows int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cannot, f.stays = tables, rows
}

func (f *Acks) Stuck(int, int) (tables map[string]bool, rows, left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cannot, f.stays, 0
}

func (f *Acks) Add(list []outbox.Completion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.List = append(f.List, list...)
}

func (f *Acks) Completions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, s := range f.List {
		out = append(out, s.ID+" "+s.Action.String())
	}
	return out
}

func (f *Acks) Take() []outbox.Completion {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.List
	f.List = nil
	return list
}

// Table is the state of rows by id.
type Table map[string]outbox.Candidate

func (f Table) States(_ context.Context, ids []outbox.Identity) ([]outbox.Candidate, error) {
	var out []outbox.Candidate
	for _, id := range ids {
		if c, ok := f[id.ID]; ok {
			c.Identity = id
			out = append(out, c)
		}
	}
	return out, nil
}

func (f Table) Untouched(_ context.Context, ids []outbox.Identity) (bool, error) {
	for _, id := range ids {
		if c, ok := f[id.ID]; !ok || c.Status != outbox.Pending || c.Waiting || c.RetryCount > 0 {
			return false, nil
		}
	}
	return true, nil
}

// Due shows all rows that are not final, in one page. A row without an identity is one of any table.
func (f Table) Due(_ context.Context, name string, _ table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	var out []outbox.Candidate
	for _, c := range f {
		if (c.Table == "" || c.Table == name) && c.Status <= outbox.Sending && time.Duration(c.DueInMilli)*time.Millisecond <= q.Horizon {
			out = append(out, c)
		}
	}
	return out, table.CursorBehind("", true), nil
}
