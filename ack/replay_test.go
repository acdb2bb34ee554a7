package ack

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
)

func TestReplayWritesInChunksAndKeepsTheUnwritable(t *testing.T) {
	w := newWorld()
	w.onApply = refuse("777")
	b := build(w, Config{})
	entries := completions(shop, 1, 1100, outbox.ActionMarkSent)
	for i := range entries {
		entries[i].Since = time.Time{}
		w.journal[entries[i].Identity] = true
	}
	w.moved = true // whatever Checkpoint reports before the start, replay must not write a checkpoint
	if err := b.Replay(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.applySizes, []int{500, 500, 100}) || len(w.journal) != 1 || len(w.written) != 1099 || b.Pending() != 0 {
		t.Fatalf("applied %v, journal %d, written %d, pending %d", w.applySizes, len(w.journal), len(w.written), b.Pending())
	}
	if !w.moved {
		t.Error("replay read the checkpoint")
	}
}

func TestReplayLeavesToRunWhatTheDatabaseDoesNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		fails := 3
		w.onApply = func(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
			if fails--; fails >= 0 {
				return nil, errGone
			}
			return nil, nil
		}
		b := build(w, Config{})
		entries := completions(shop, 1, 3, outbox.ActionMarkSent)
		for _, e := range entries {
			w.journal[e.Identity] = true
		}
		if err := b.Replay(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
		if len(w.applySizes) != 1 || b.Pending() != 3 || len(w.journal) != 3 {
			t.Fatalf("%d attempts, pending %d, journal %d", len(w.applySizes), b.Pending(), len(w.journal))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if len(w.applySizes) != 4 || b.Pending() != 0 || len(w.journal) != 0 {
			t.Fatalf("%d attempts, pending %d, journal %d", len(w.applySizes), b.Pending(), len(w.journal))
		}
	})
}

func TestReplayEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := build(newWorld(), Config{}).Replay(ctx, completions(shop, 1, 3, outbox.ActionMarkSent)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// Whatever fails and whatever the table refuses, every completion is settled once and written once, and only the sent rows that
// cannot be written are left in the journal.
func TestEveryCompletionIsSettledOnceWhateverFails(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		list := []outbox.Completion{}
		bad := map[outbox.Identity]bool{}
		for n := range rapid.IntRange(1, 60).Draw(r, "rows") {
			s := completion(rapid.SampledFrom([]string{"a", "b"}).Draw(r, "table"), n,
				outbox.Action(rapid.IntRange(0, 3).Draw(r, "action")))
			bad[s.Identity] = rapid.IntRange(0, 9).Draw(r, "bad") == 0
			list = append(list, s)
		}
		fails := rapid.SliceOfN(rapid.Bool(), 40, 40).Draw(r, "fails")
		synctest.Test(t, func(t *testing.T) { runCompletions(t, list, bad, fails) })
	})
}

func runCompletions(t *testing.T, list []outbox.Completion, bad map[outbox.Identity]bool, fails []bool) {
	w := newWorld()
	var lock sync.Mutex // the tables are written at the same time
	w.onApply = func(_ context.Context, batch []outbox.Completion) (out []outbox.WriteError, _ error) {
		lock.Lock()
		defer lock.Unlock()
		if len(fails) > 0 {
			fail := fails[0]
			fails = fails[1:]
			if fail {
				return nil, errGone
			}
		}
		for _, s := range batch {
			if bad[s.Identity] {
				out = append(out, outbox.WriteError{Completion: s})
			}
		}
		return out, nil
	}
	b := start(t, w)
	var adders sync.WaitGroup
	for part := range slices.Chunk(list, 7) {
		adders.Go(func() { b.Add(part) })
		time.Sleep(3 * time.Millisecond)
	}
	adders.Wait()
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		stays := bad[s.Identity] && s.Action == outbox.ActionMarkSent
		if w.settled[s.Identity] != 1 || (w.written[s.Identity] == 1) == stays || w.journal[s.Identity] != stays {
			t.Fatalf("%v %v unwritable=%v: settled %d, written %d, in the journal %v", s.Identity, s.Action, bad[s.Identity],
				w.settled[s.Identity], w.written[s.Identity], w.journal[s.Identity])
		}
	}
	for _, call := range w.trace() {
		if strings.HasPrefix(call, "broken") {
			t.Fatal(call)
		}
	}
	if b.Pending() != 0 {
		t.Fatalf("pending %d", b.Pending())
	}
}
