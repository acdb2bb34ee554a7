package pipeline

import (
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A sweep takes what it finds for rows that the log never showed unless it is told otherwise: ActivityEpoch must change with
// everything that leaves a row to it, and with nothing else, or it would never come to count one.
func TestActivityEpochTellsWhatIsLeftToTheSweep(t *testing.T) {
	claimed := func(m *outbox.Message) { m.Claim, m.Path = "2026-01-01 00:00:00.000", outbox.PathSweep }
	confirm := func(b *bench) {
		synctest.Wait()
		list := b.acks.take()
		b.Settled(list)
		b.Written(list)
	}
	for name, c := range map[string]struct {
		then func(*bench)
		want bool
	}{
		"sent":            {func(b *bench) { b.offer(row(1)); confirm(b) }, false},
		"nothing of ours": {func(b *bench) { b.offer() }, false},
		"not due": {func(b *bench) {
			b.offer(row(1, func(m *outbox.Message) { m.DueAt = time.Now().Add(time.Hour) }))
		}, false},
		"not PENDING": {func(b *bench) { b.offer(row(1, func(m *outbox.Message) { m.Status = outbox.Held })) }, false},
		"sent by the sweep": {func(b *bench) {
			b.Reserve([]outbox.Candidate{{Identity: row(1).Identity}})
			if err := b.Publish(b.ctx, []*outbox.Message{row(1, claimed)}); err != nil {
				b.t.Fatal(err)
			}
			confirm(b)
		}, false},
		"a group": {func(b *bench) {
			txn := b.txn()
			txn.Deferred = []outbox.Deferred{{Cause: outbox.CauseXA}}
			if err := b.Offer(b.ctx, txn); err != nil {
				b.t.Fatal(err)
			}
		}, true},
		"a row of a broker that is away": {func(b *bench) {
			b.sink.answer = always(outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition, Reason: "no leader"})
			b.offer(row(1))
		}, true},
		"refused": {func(b *bench) {
			b.sink.answer = always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"})
			b.offer(row(1))
			confirm(b)
		}, true},
		"the window is raised": {func(b *bench) { b.RaiseWindow(end(7)) }, true},
		"shown while a sweep looks at it": {func(b *bench) {
			b.Reserve([]outbox.Candidate{{Identity: row(1).Identity}})
			b.offer(row(1))
			b.Release([]outbox.Identity{row(1).Identity})
		}, true},
		"the position is moved": {func(b *bench) {
			if _, err := b.Move(outbox.MySQL, end(7)); err != nil {
				b.t.Fatal(err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Config{MaxRetry: 3}, func(b *bench) {
				b.t = t
				before := b.ActivityEpoch()
				c.then(b)
				synctest.Wait()
				if changed := b.ActivityEpoch() != before; changed != c.want {
					t.Errorf("activity changed: %v, want %v", changed, c.want)
				}
			})
		})
	}
}

func TestMissedInsertsHaveACauseOfTheirOwn(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Missed(3)
		var m dto.Metric
		if err := b.metrics.let[outbox.CauseMissed].Write(&m); err != nil {
			t.Fatal(err)
		}
		if n := m.GetCounter().GetValue(); n != 3 || b.ActivityEpoch() != 0 {
			t.Errorf("deferred_total{cause=missed} is %v, activity %d", n, b.ActivityEpoch())
		}
	})
}
