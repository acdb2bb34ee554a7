package fallback

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file has the parts of world for tests of timers.

// promised is the maximum delay of a row.
const promised = 100 * time.Millisecond

// Upcoming returns the rows for a look of timers.
func (w *world) Upcoming(_ context.Context, name string, from, to time.Duration, limit int) ([]outbox.Candidate, error) {
	if strings.HasPrefix(name, idle) {
		return nil, w.call(&w.onLook)
	}
	if name != shop && name != second {
		return nil, errors.New("no such table")
	}
	w.mu.Lock()
	w.looks++
	var list []outbox.Candidate
	for _, r := range slices.SortedFunc(maps.Values(w.rows), func(a, b *row) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.id, b.id)) }) {
		if left := time.Until(r.due); cmp.Or(r.table, shop) == name && r.status == outbox.Pending && !r.due.IsZero() && left > from && left <= to && len(list) < limit {
			list = append(list, r.candidate())
		}
	}
	w.mu.Unlock()
	return list, w.call(&w.onLook)
}

func (w *world) States(_ context.Context, ids []outbox.Identity) ([]outbox.Candidate, error) {
	if err := w.call(&w.onStates); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked += len(ids)
	w.passes++
	var list []outbox.Candidate
	for _, id := range ids {
		if r := w.rows[atoi(id.ID)]; r != nil {
			list = append(list, r.candidate())
		}
	}
	return list, nil
}

// waiting returns rows with these ids whose due times are spread over a range that begins after a while.
func waiting(from, to int, after, length time.Duration) (list []*row) {
	for id := from; id < to; id++ {
		r := old(id)
		r.due = time.Now().Add(after + length*time.Duration(id-from)/time.Duration(to-from))
		list = append(list, r)
	}
	return list
}

// slow gives every statement a duration.
func (w *world) slow(d time.Duration) {
	pause := func() error { time.Sleep(d); return nil }
	w.onLook, w.onStates, w.onClaim, w.onRead, w.onEnd = pause, pause, pause, pause, pause
}

// wantInTime checks that timers publish this number of rows, none early and none late.
func (b *bench) wantInTime(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	late := slices.Sorted(slices.Values(look(b.world, &b.late)))
	if len(late) != n {
		t.Fatalf("timers published %d rows of %d", len(late), n)
	}
	if late[0] < -nearlyDue || late[n-1] > promised {
		t.Errorf("rows were published %v to %v after their time", late[0], late[n-1])
	}
}
