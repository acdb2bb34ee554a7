package fallback

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A row that the log never showed is known by exclusion. In each case rows become visible before a regular sweep that finds
// them; they count as missed only where nothing else can explain them.
func TestMissedInsertsAreCountedByExclusion(t *testing.T) {
	const long = 3 * time.Minute // beyond threshold, two intervals and lateCommit
	disturb := func(b *bench) { b.alter(func() { b.activity++ }) }
	hidden := func(b *bench, rows ...*row) {
		b.insert(rows...)
		time.Sleep(31 * time.Second)
	}
	for name, c := range map[string]struct {
		then func(*bench)
		want int
	}{
		"quiet": {func(b *bench) { hidden(b, old(1), old(2)) }, 2},
		"again": {func(b *bench) {
			hidden(b, old(1))
			hidden(b, old(2))
		}, 2},
		"a row with a due time": {func(b *bench) {
			r := old(1)
			r.due = time.Now().Add(-time.Hour)
			hidden(b, r, old(2))
		}, 1},
		"a row that was tried":       {func(b *bench) { hidden(b, &row{id: 1, retries: 1, created: time.Now().Add(-time.Hour)}) }, 0},
		"a claim that expired":       {func(b *bench) { hidden(b, &row{id: 1, status: outbox.Sending}) }, 0},
		"found by a triggered sweep": {func(b *bench) { b.insert(old(1)); b.Trigger(); time.Sleep(time.Minute) }, 0},
		"something was deferred during the sweep": {func(b *bench) {
			set(b.world, &b.onClaim, func() error { disturb(b); return nil })
			hidden(b, old(1))
		}, 0},
		"something was deferred lately": {func(b *bench) {
			disturb(b)
			b.Trigger()
			time.Sleep(time.Minute)
			hidden(b, old(1))
		}, 0},
		"something was deferred, and no sweep over rows of any age came": {func(b *bench) {
			disturb(b)
			time.Sleep(long)
			hidden(b, old(1))
		}, 0},
		"quiet again": {func(b *bench) {
			disturb(b)
			b.Trigger()
			time.Sleep(long)
			hidden(b, old(1))
		}, 1},
		"rows of a suspended topic waited": {func(b *bench) {
			b.alter(func() { b.suspended["missing"] = true })
			r := old(1)
			r.topic = "missing"
			b.insert(r)
			b.Trigger()
			time.Sleep(long)
			b.alter(func() { clear(b.suspended) })
			time.Sleep(31 * time.Second)
		}, 0},
		"the sweep failed": {func(b *bench) {
			set(b.world, &b.onRead, func() error { return errGone })
			hidden(b, old(1))
			set(b.world, &b.onRead, nil)
			time.Sleep(long)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, newWorld())
				b.Full() // as the relay does
				time.Sleep(long)
				c.then(b)
				synctest.Wait()
				if got := look(b.world, &b.missed); got != c.want {
					t.Errorf("%d rows count as missed, want %d", got, c.want)
				}
			})
		})
	}
}

// After a start the rows that an earlier process deferred are there.
func TestNothingIsMissedSoonAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newWorld(old(1)))
		b.Full()
		time.Sleep(time.Minute)
		b.insert(old(2))
		time.Sleep(31 * time.Second)
		want(t, "within the time that a late commit may take", b.got(), 1, 2)
		if n := look(b.world, &b.missed); n != 0 {
			t.Errorf("%d rows count as missed", n)
		}
	})
}
