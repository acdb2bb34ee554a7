package ack

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

const shop = "shop.t_local_message"

func wantCalls(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("calls:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// The order bounds duplicates (P3) and loses nothing: settled, then the checkpoint and the entry in one batch, then the table,
// then the registry; the entry is removed by a later batch.
func TestD04_SentIsJournalledWithTheCheckpointBeforeTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newWorld())
		b.Add([]outbox.Completion{completion(shop, 1, outbox.ActionMarkSent)})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantCalls(t, b.trace(),
			"settled [1]",
			"commit sent=[1] written=0 checkpoint=true",
			"apply [1] true",
			"written [1]",
			"commit sent=[] written=1 checkpoint=false",
		)
		if b.Pending() != 0 || b.journalled() != 0 {
			t.Fatalf("pending %d, in the journal %d", b.Pending(), b.journalled())
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A60: a checkpoint with a large GTID set is not written with every commit, and always with the last one.
func TestA60_LargeCheckpointsAreFew(t *testing.T) {
	for name, c := range map[string]struct {
		gtids       string
		least, most int
	}{"large": {strings.Repeat(":1-2", 2000), 9, 12}, "small": {"1-2", 80, 201}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.gtids = c.gtids
				b := start(t, w)
				for n := range 190 { // for 1.9 s: the last one right after a checkpoint
					b.Add([]outbox.Completion{completion(shop, n, outbox.ActionMarkSent)})
					time.Sleep(10 * time.Millisecond)
				}
				if err := b.close(); err != nil {
					t.Fatal(err)
				}
				with := 0
				for _, call := range b.trace() {
					if strings.Contains(call, "checkpoint=true") {
						with++
					}
				}
				if with < c.least || with > c.most || b.moved {
					t.Errorf("%d commits with a checkpoint; one is left: %v", with, b.moved)
				}
			})
		})
	}
}

func TestRefusedRowsAreSettledOnlyWhenTheTableHasThem(t *testing.T) {
	for _, v := range []outbox.Action{outbox.ActionRetry, outbox.ActionFail, outbox.ActionRelease} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			var away atomic.Bool
			away.Store(true)
			w.onApply = func(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
				if away.Load() {
					return nil, errors.New("server has gone away")
				}
				return nil, nil
			}
			b := start(t, w)
			b.Add([]outbox.Completion{completion(shop, 1, v)})
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			wantCalls(t, b.trace(), "apply [1] false")
			away.Store(false)
			time.Sleep(time.Second)
			synctest.Wait()
			wantCalls(t, b.trace(), "apply [1] false", "apply [1] true", "settled [1]", "written [1]")
			if err := b.close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestC03_FailedCommitEndsRunAndNothingIsWrittenAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		broken := errors.New("disk full")
		w.onCommit = func(sent []outbox.Completion) error {
			if slices.Contains(names(sent), "2") {
				return broken
			}
			return nil
		}
		w.onApply = func(ctx context.Context, _ []outbox.Completion) ([]outbox.WriteError, error) {
			<-ctx.Done() // a statement is running: the stop must not wait for it
			return nil, ctx.Err()
		}
		b := start(t, w)
		b.Add([]outbox.Completion{completion(shop, 1, outbox.ActionMarkSent)})
		time.Sleep(time.Second)
		b.Add([]outbox.Completion{completion(shop, 2, outbox.ActionMarkSent)})
		began := time.Now()
		if err := <-b.end; !errors.Is(err, broken) {
			t.Fatalf("Run ended with %v", err)
		}
		if time.Since(began) > time.Second {
			t.Fatalf("Run ended %v after the failure", time.Since(began))
		}
		wantCalls(t, b.trace(), "settled [1]", "commit sent=[1] written=0 checkpoint=true", "settled [2]", "apply [1] false")
	})
}

// A commit costs a sync whatever its size: a few rows wait for each other, many for the shortest time.
func TestCommitsAtOnceWhenIdleAndPacedUnderLoad(t *testing.T) {
	for _, c := range []struct {
		rows        int // each millisecond
		apart       time.Duration
		least, most int // commits in 100 ms
	}{{1, 20 * time.Millisecond, 5, 6}, {manyRows, 5 * time.Millisecond, 17, 21}} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, newWorld())
			begin := time.Now()
			for n := range 100 {
				for i := range c.rows {
					b.Add([]outbox.Completion{completion(shop, n*c.rows+i, outbox.ActionMarkSent)})
				}
				synctest.Wait()
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			b.mu.Lock()
			times := slices.Clone(b.commitTime)
			b.mu.Unlock()
			if !times[0].Equal(begin) {
				t.Errorf("the first commit waited for %v", times[0].Sub(begin))
			}
			for i := 1; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]); gap < c.apart {
					t.Fatalf("%d rows each millisecond: commits %v apart", c.rows, gap)
				}
			}
			if len(times) < c.least || len(times) > c.most {
				t.Errorf("%d rows each millisecond: %d commits in 100 ms", c.rows, len(times))
			}
			if err := b.close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestForeignTrafficMovesTheCheckpointEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newWorld())
		b.mu.Lock()
		b.moved = true
		b.mu.Unlock()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		wantCalls(t, b.trace(), "commit sent=[] written=0 checkpoint=true")
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestD26_StopFlushesJournalAndTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b := start(t, w)
		b.Add(completions(shop, 1, 1200, outbox.ActionMarkSent))
		b.Add(completions(shop, 1201, 1300, outbox.ActionRetry))
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
		if len(w.written) != 1300 || w.journalled() != 0 || b.Pending() != 0 {
			t.Fatalf("written %d, left in the journal %d, pending %d", len(w.written), w.journalled(), b.Pending())
		}
	})
}

func TestStopDoesNotCutTheStatementOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.onApply = func(ctx context.Context, _ []outbox.Completion) ([]outbox.WriteError, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(3 * time.Second):
				return nil, nil
			}
		}
		b := start(t, w)
		b.Add([]outbox.Completion{completion(shop, 1, outbox.ActionMarkSent)})
		time.Sleep(time.Second) // the statement is running
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
		if want := []int{1}; !slices.Equal(w.applySizes, want) || w.journalled() != 0 {
			t.Fatalf("applied in batches %v, left in the journal %d", w.applySizes, w.journalled())
		}
	})
}

func TestStopIsBoundedWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.onApply = func(ctx context.Context, _ []outbox.Completion) ([]outbox.WriteError, error) {
			<-ctx.Done() // a silent connection
			return nil, ctx.Err()
		}
		b := start(t, w)
		b.Add(completions(shop, 1, 700, outbox.ActionMarkSent))
		time.Sleep(time.Second)
		began := time.Now()
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the stop took %v", took)
		}
		if w.journalled() != 700 || len(w.written) != 0 {
			t.Errorf("journal %d, written %d", w.journalled(), len(w.written))
		}
		left := b.logs.FilterMessageSnippet("results not written before the stop").All()
		if len(left) != 1 || left[0].ContextMap()["rows"] != int64(700) {
			t.Errorf("logged %v", left)
		}
	})
}
