package ack

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// lanes holds completions for the marker, one lane for each table: a status update concerns one table anyway, and a table that
// cannot be written (an ALTER holds its lock, a grant is missing) must not hold up the others. Rows that somebody has locked
// have a second lane beside their table's, for the same reason.
type lanes struct {
	signal chan struct{} // holds one token when something was added since the last receive

	mu      sync.Mutex
	lanes   map[laneKey]*lane
	failing map[bool]int // lanes whose last attempt failed; true: those for locked rows
}

type laneKey struct {
	table  string
	locked bool // for rows that were behind a lock when they were tried last
}

type lane struct {
	items    []outbox.Completion
	since    time.Time // when the oldest item came
	failures int       // attempts since the last that worked
	why      string    // of the last failure
	left     int       // rows in it at that time: during an attempt items lacks them
	retryAt  time.Time // no attempt before
}

func newLanes() *lanes {
	return &lanes{signal: make(chan struct{}, 1), lanes: map[laneKey]*lane{}, failing: map[bool]int{}}
}

func (l *lanes) add(list []outbox.Completion) {
	if len(list) == 0 {
		return
	}
	l.mu.Lock()
	for _, s := range list {
		t := l.lane(laneKey{table: s.Table})
		if len(t.items) == 0 {
			t.since = time.Now()
		}
		t.items = append(t.items, s)
	}
	l.mu.Unlock()
	raise(l.signal)
}

// lane finds or makes a lane. Callers hold mu.
func (l *lanes) lane(key laneKey) *lane {
	t := l.lanes[key]
	if t == nil {
		t = &lane{}
		l.lanes[key] = t
	}
	return t
}

// next waits for a batch of one lane: markBatch rows, or what is there when the oldest has waited for patience, but never
// before the lane's next attempt is due. It reports false when ctx ends first. The batch is the caller's until it is
// answered by failed or worked.
func (l *lanes) next(ctx context.Context, patience time.Duration) (key laneKey, batch []outbox.Completion, ok bool) {
	for ctx.Err() == nil {
		key, batch, wait := l.poll(time.Now(), patience)
		if len(batch) > 0 {
			return key, batch, true
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
	return laneKey{}, nil, false
}

// poll takes the batch that has been due for longest. When none is due, wait is the time until one is; 0 when all lanes are
// empty.
func (l *lanes) poll(now time.Time, patience time.Duration) (key laneKey, batch []outbox.Completion, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first time.Time
	for k, t := range l.lanes {
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
		if key.table == "" || due.Before(first) {
			key, first = k, due
		}
	}
	if key.table == "" || first.After(now) {
		return laneKey{}, nil, max(0, first.Sub(now))
	}
	t := l.lanes[key]
	batch, t.items = takeFirst(t.items, markBatch)
	return key, batch, 0
}

// failed puts a batch to the head of a lane: its own, or that of the locked rows. retry gives the wait after that many
// failures in a row before this one. It reports whether this is the first lane of its kind to fail.
func (l *lanes) failed(key laneKey, batch []outbox.Completion, why string, retry func(failures int) time.Duration) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.lane(key)
	t.items = slices.Concat(batch, t.items)
	t.retryAt, t.why, t.left = time.Now().Add(retry(t.failures)), why, len(t.items)
	if t.failures == 0 {
		l.failing[key.locked]++
	}
	t.failures++
	return l.failing[key.locked] == 1 && t.failures == 1
}

// worked forgets the failures of a lane. It reports whether it was the last one of its kind failing.
func (l *lanes) worked(key laneKey) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.lane(key)
	if t.failures == 0 {
		return false
	}
	t.failures, t.retryAt = 0, time.Time{}
	l.failing[key.locked]--
	return l.failing[key.locked] == 0
}

func (l *lanes) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, t := range l.lanes {
		n += len(t.items)
	}
	return n
}

// lockedRows counts the rows that were behind a lock when they were tried last.
func (l *lanes) lockedRows() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for key, t := range l.lanes {
		if key.locked && t.failures > 0 {
			n += t.left
		}
	}
	return n
}

// troubles says of each table why statuses do not get into it, in the order of the tables.
func (l *lanes) troubles() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, t := range l.lanes {
		switch {
		case t.failures == 0:
		case key.locked:
			list = append(list, fmt.Sprintf("%s: the statuses of %d row(s) wait for locks that another session holds", key.table, t.left))
		default:
			list = append(list, fmt.Sprintf("%s: statuses cannot be written: %s", key.table, t.why))
		}
	}
	slices.Sort(list)
	return list
}

// troubled reports whether the last attempt of some lane failed.
func (l *lanes) troubled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failing[false]+l.failing[true] > 0
}
