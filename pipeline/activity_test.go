package pipeline_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// The activity changes with each row that the flow leaves to the sweep and that looks there like one that the log never showed.
func TestActivityShowsWhatIsLeftToTheSweep(t *testing.T) {
	confirm := func(b *bench) {
		synctest.Wait()
		list := b.Acks.Take()
		b.Tracker.Settled(list)
		b.Tracker.Written(list)
	}
	for name, c := range map[string]struct {
		then func(*bench)
		want bool
	}{
		"not due": {func(b *bench) {
			b.OfferRows(flowtest.Row(1, func(m *outbox.Message) { m.DueAt = time.Now().Add(time.Hour) }))
		}, false},
		"not PENDING": {func(b *bench) { b.OfferRows(flowtest.Row(1, func(m *outbox.Message) { m.Status = outbox.Held })) }, false},
		"a row of a broker that is away": {func(b *bench) {
			b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition, Reason: "no leader"})
			b.OfferRows(flowtest.Row(1), flowtest.Row(2)) // one of them stays in memory
		}, true},
		"refused": {func(b *bench) {
			b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"})
			b.OfferRows(flowtest.Row(1))
			confirm(b)
		}, true},
		"the window is raised": {func(b *bench) { b.Recovery.Raise(flowtest.End(7)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Config{MaxRetry: 3}, func(b *bench) {
				b.T = t
				before := b.Tracker.Activity.Count()
				c.then(b)
				synctest.Wait()
				if changed := b.Tracker.Activity.Count() != before; changed != c.want {
					t.Errorf("activity changed: %v, want %v", changed, c.want)
				}
			})
		})
	}
}

// A row that the log never showed is known by exclusion: a sweep over rows of some age has tried it for the first time, and nothing
// else can explain it.
func TestMissedInsertsAreCountedByExclusion(t *testing.T) {
	const within, lateCommit = 2 * time.Minute, 15 * time.Second
	quiet := func(b *bench) { // what a relay does at its start
		b.Swept(outbox.Sweep{Began: time.Now(), AnyAge: true, Within: within})
		time.Sleep(within + lateCommit)
	}
	regular := func(b *bench, untried int) {
		b.Swept(outbox.Sweep{Began: time.Now(), Untried: untried, Within: within})
	}
	anyAge := func(b *bench) { b.Swept(outbox.Sweep{Began: time.Now(), AnyAge: true, Untried: 7, Within: within}) }
	for name, c := range map[string]struct {
		then func(*bench)
		want float64
	}{
		"quiet":                      {func(b *bench) { quiet(b); regular(b, 2) }, 2},
		"again":                      {func(b *bench) { quiet(b); regular(b, 1); regular(b, 1) }, 2},
		"found by a triggered sweep": {func(b *bench) { quiet(b); anyAge(b) }, 0},
		"soon after the start": {func(b *bench) {
			anyAge(b)
			time.Sleep(within)
			regular(b, 1)
		}, 0},
		"something was deferred during the sweep": {func(b *bench) {
			quiet(b)
			b.Tracker.Activity.Disturb()
			regular(b, 1)
		}, 0},
		"something was deferred lately": {func(b *bench) {
			quiet(b)
			b.Tracker.Activity.Disturb()
			anyAge(b)
			anyAge(b)
			time.Sleep(within)
			regular(b, 1)
		}, 0},
		"something was deferred, and no sweep over rows of any age came": {func(b *bench) {
			quiet(b)
			b.Tracker.Activity.Disturb()
			regular(b, 0)
			time.Sleep(time.Hour)
			regular(b, 1)
		}, 0},
		"quiet again": {func(b *bench) {
			quiet(b)
			b.Tracker.Activity.Disturb()
			anyAge(b)
			quiet(b)
			regular(b, 1)
		}, 1},
		"rows of a suspended topic were left alone": {func(b *bench) {
			quiet(b)
			b.Sink.Missing["orders"], b.Sink.Answer = true, flowtest.Always(outbox.Outcome{Class: outbox.ClassTopic})
			b.OfferRows(flowtest.Row(1))
			anyAge(b)
			b.ReserveRows(flowtest.Row(2))
			anyAge(b)
			time.Sleep(time.Hour)
			regular(b, 1)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Config{}, func(b *bench) {
				c.then(b)
				families, err := b.Reg.Gather()
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range families {
					if n := f.Metric[0].GetCounter().GetValue(); f.GetName() == "canal_outbox_missed_total" && n != c.want {
						t.Errorf("%v rows count as missed, want %v", n, c.want)
					}
				}
			})
		})
	}
}
