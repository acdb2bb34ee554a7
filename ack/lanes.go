package ack

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// lanes holds verdicts for the marker, one lane for each table: a status update concerns one table anyway, and a table that
// cannot be written (an ALTER holds its lock, a grant is missing) must not hold up the others.
type lanes struct {
	signal chan struct{} // holds one token when something was added since the last receive

	mu      sync.Mutex
	tables  map[string]*lane
	failing int // lanes whose last attempt failed
}

type lane struct {
	items    []outbox.Settlement
	since    time.Time // when the oldest item came
	failures int       // attempts since the last that worked
	retryAt  time.Time // no attempt before
}

func newLanes() *lanes { return &lanes{signal: make(chan struct{}, 1), tables: map[string]*lane{}} }

func (l *lanes) add(list []outbox.Settlement) {
	if len(list) == 0 {
		return
	}
	l.mu.Lock()
	for _, s := range list {
		t := l.tables[s.Table]
		if t == nil {
			t = &lane{}
			l.tables[s.Table] = t
		}
		if len(t.items) == 0 {
			t.since = time.Now()
		}
		t.items = append(t.items, s)
	}
	l.mu.Unlock()
	raise(l.signal)
}

// next waits for a batch of one table: markBatch rows, or what is there when the oldest has waited for patience, but never
// before the lane's next attempt is due. It reports false when ctx ends first. The batch is the caller's until it is
// answered by failed or worked.
func (l *lanes) next(ctx context.Context, patience time.Duration) (table string, batch []outbox.Settlement, ok bool) {
	for ctx.Err() == nil {
		table, batch, wait := l.poll(time.Now(), patience)
		if len(batch) > 0 {
			return table, batch, true
		}
		var timeout <-chan time.Time // nil, so never, when every lane is empty
		if wait > 0 {
			timeout = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-l.signal:
		case <-timeout:
		}
	}
	return "", nil, false
}

// poll takes the batch that has been due for longest. When none is due, wait is the time until one is; 0 when all lanes are
// empty.
func (l *lanes) poll(now time.Time, patience time.Duration) (table string, batch []outbox.Settlement, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first time.Time
	for name, t := range l.tables {
		if len(t.items) == 0 {
			continue
		}
		due := t.since
		if len(t.items) < markBatch {
			due = due.Add(patience)
		}
		if due.Before(t.retryAt) {
			due = t.retryAt
		}
		if table == "" || due.Before(first) {
			table, first = name, due
		}
	}
	if table == "" || first.After(now) {
		return "", nil, max(0, first.Sub(now))
	}
	t := l.tables[table]
	batch, t.items = takeFirst(t.items, markBatch)
	return table, batch, 0
}

// failed puts a batch back to the head of its lane. retry gives the wait after that many failures in a row before this one.
// It reports whether this is the first lane to fail.
func (l *lanes) failed(table string, batch []outbox.Settlement, retry func(failures int) time.Duration) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tables[table]
	t.items = slices.Concat(batch, t.items)
	t.retryAt = time.Now().Add(retry(t.failures))
	if t.failures == 0 {
		l.failing++
	}
	t.failures++
	return l.failing == 1 && t.failures == 1
}

// worked forgets the failures of a lane. It reports whether it was the last one failing.
func (l *lanes) worked(table string) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tables[table]
	if t.failures == 0 {
		return false
	}
	t.failures, t.retryAt = 0, time.Time{}
	l.failing--
	return l.failing == 0
}

func (l *lanes) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, t := range l.tables {
		n += len(t.items)
	}
	return n
}

// troubled reports whether the last attempt of some lane failed.
func (l *lanes) troubled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failing > 0
}
