package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// This file is for many sources at once: databases, each with relays, tables and state directories of its own, in one process and one
// virtual time. All that they could share are the relay's own package variables, and nothing of those may let one feel the other.

const (
	sources    = 16
	fleetEvery = 500 // of the other seeds there is one fleet, which is 32 seeds
)

// fleet is a set of sources: which seed each of them has, and which of them fail.
type fleet struct {
	seeds   [sources]uint64
	failing [sources]bool
}

// drawFleet draws which sources fail. Those have two or three processes with a lease, which are killed, frozen and cut off from their
// servers. Nothing happens to the others, which have one. The second fleet has the same sources but for the failing ones: nothing fails.
func drawFleet(number uint64) (disturbed, calm fleet) {
	d := newDice(number, "fleet")
	for range d.in(2, 6) {
		disturbed.failing[d.n(sources)] = true
	}
	for n := range sources {
		from := 1 + (number*sources+uint64(n))*1000
		calm.seeds[n] = nextSeed(from, true)
		if disturbed.seeds[n] = calm.seeds[n]; disturbed.failing[n] {
			disturbed.seeds[n] = nextSeed(teams+from, false)
		}
	}
	return disturbed, calm
}

// nextSeed is the first seed in whose plan nothing fails, or something.
func nextSeed(from uint64, quiet bool) uint64 {
	for ; newPlan(from).quiet != quiet; from++ {
	}
	return from
}

// course is what became of one source.
type course struct {
	violations []string
	deliveries []delivery
	leases     uint64 // how often a process took the lease
}

// delivery is a copy of a message in the broker.
type delivery struct {
	row string
	at  time.Duration
}

// run runs all sources side by side.
func (f fleet) run(t *testing.T) (all [sources]course) {
	running.Store(f.seeds[0], time.Now())
	defer running.Delete(f.seeds[0])
	synctest.Test(t, func(*testing.T) {
		var side sync.WaitGroup
		for n, seed := range f.seeds {
			side.Go(func() {
				w := newWorld(seed)
				w.run()
				all[n] = w.course()
			})
		}
		side.Wait()
	})
	return all
}

// course looks back on a run.
func (w *world) course() course {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := course{violations: w.violations, leases: w.leaseTable.Newest}
	for _, r := range w.records {
		c.deliveries = append(c.deliveries, delivery{name(r.row.Identity), r.at})
	}
	return c
}

// TestSourcesDoNotFeelEachOther runs 16 sources, of which some fail, and the same without the failures. Each keeps its promises;
// those that fail do so with take-overs. The others deliver the same messages at the same times as in the run without failures.
func TestSourcesDoNotFeelEachOther(t *testing.T) {
	if *replayed != 0 {
		t.Skip("one seed is replayed")
	}
	defer watch()()
	var compared, differ, failed int
	var leases uint64
	for number := range uint64(max(1, *seeds/fleetEvery)) {
		disturbed, calm := drawFleet(number)
		got, want := disturbed.run(t), calm.run(t)
		for n := range sources {
			if list := slices.Concat(got[n].violations, want[n].violations); len(list) > 0 {
				t.Errorf("fleet %d, source %d, seed %d or %d:\n  %s", number, n, disturbed.seeds[n], calm.seeds[n], strings.Join(list, "\n  "))
			}
			if disturbed.failing[n] {
				failed++
				leases += got[n].leases
				continue
			}
			compared++
			if d := difference(got[n].text(), want[n].text()); got[n].text() != want[n].text() {
				differ++
				t.Logf("fleet %d, source %d, seed %d: next to sources that fail, and next to none: %s", number, n, calm.seeds[n], d)
			}
		}
	}
	t.Logf("%d sources failed, and their leases were taken %d times; of %d others %d were not as if no source had failed", failed, leases, compared, differ)
	if differ > compared/20 && !raced { // see TestSameSeedSameTrace
		t.Error("sources that fail are felt by others")
	}
	if leases <= uint64(failed) {
		t.Error("no relay took over from another")
	}
}

// text has a line for each delivery.
func (c course) text() string {
	lines := make([]string, len(c.deliveries))
	for n, d := range c.deliveries {
		lines[n] = fmt.Sprintf("%12.9f  %s", d.at.Seconds(), d.row)
	}
	return strings.Join(lines, "\n")
}
