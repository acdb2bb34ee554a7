package sim

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seeds    = flag.Int("sim.seeds", 20000, "how many seeds to run; a twentieth with -short")
	limit    = flag.Uint64("sim.failures", 10, "stop after so many that failed")
	first    = flag.Uint64("sim.first", 1, "the first seed")
	replayed = flag.Uint64("sim.seed", 0, "run this seed alone and print its trace")
)

func TestMain(m *testing.M) {
	debug.SetTraceback("all") // a panic in a bubble shows the seed as an argument of runSeed
	os.Exit(m.Run())
}

// describe makes the report of a failed seed.
func describe(r result) string {
	return fmt.Sprintf("seed %d:\n  %s\nreplay with the trace: go test ./test/sim -run TestReplay -sim.seed=%d -v",
		r.seed, strings.Join(r.violations, "\n  "), r.seed)
}

// TestSeeds runs random histories and checks the promises in each.
func TestSeeds(t *testing.T) {
	if *replayed != 0 {
		t.Skip("one seed is replayed")
	}
	defer watch()()
	var next, failed atomic.Uint64
	next.Store(*first)
	if testing.Short() {
		*seeds /= 20
	}
	end := *first + uint64(*seeds)
	began := time.Now()
	var until time.Time
	if text := os.Getenv("SIM_TIME"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		until, end = began.Add(d), ^uint64(0)
		next.Store(uint64(began.UnixNano()))
	}
	t.Run("shards", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				for {
					seed := next.Add(1) - 1
					if seed >= end || failed.Load() >= *limit || !until.IsZero() && time.Now().After(until) {
						return
					}
					if r := runSeed(t, seed); len(r.violations) > 0 {
						failed.Add(1)
						t.Error(describe(r))
					}
				}
			})
		}
	})
	t.Logf("seeds from %d to %d in %v", *first, next.Load(), time.Since(began))
}

// running are the seeds that run now.
var running sync.Map // seed -> when it began

// watch ends the process when a seed hangs in real time: virtual time stands still while a goroutine of the bubble waits
// for a mutex whose holder sleeps.
func watch() (stop func()) {
	const hung = 2 * time.Minute
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
			running.Range(func(seed, began any) bool {
				if d := time.Since(began.(time.Time)); d > hung {
					panic(fmt.Sprintf("seed %v hangs since %v", seed, d))
				}
				return true
			})
		}
	}()
	return func() { close(done) }
}

// TestReplay shows one seed.
func TestReplay(t *testing.T) {
	if *replayed == 0 {
		t.Skip("no seed is named: -sim.seed")
	}
	r := runSeed(t, *replayed)
	t.Logf("%d rows, %d records, %d processes, %v\n%s", r.rows, r.records, r.lives, r.virtual, text(r))
	if len(r.violations) > 0 {
		t.Error(describe(r))
	}
}

// TestSameSeedSameTrace shows how exact a replay is. Goroutines of the relay that become runnable at one instant are
// ordered by Go's scheduler, at random under the race detector, so a few seeds may differ; most must not.
func TestSameSeedSameTrace(t *testing.T) {
	const n = 200
	differ := 0
	for seed := range uint64(n) {
		a, b := ordered(runSeed(t, seed)), ordered(runSeed(t, seed))
		if a != b {
			differ++
			if testing.Verbose() {
				t.Logf("seed %d: %s", seed, difference(a, b))
			}
		}
	}
	t.Logf("%d of %d seeds had another trace the second time", differ, n)
	if differ > n/5 {
		t.Error("a failing seed could not be relied on to fail again")
	}
}

func text(r result) string {
	lines := make([]string, len(r.trace))
	for i, e := range r.trace {
		lines[i] = e.String()
	}
	return strings.Join(lines, "\n")
}

// ordered is the trace with the lines of one instant in the order of their texts.
func ordered(r result) string {
	slices.SortStableFunc(r.trace, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.String(), b.String()))
	})
	return text(r)
}

func difference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d:\n%s\n%s", i+1, x[i], y[i])
		}
	}
	return "one is longer"
}
