package dispatch_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Without the lease nothing is sent, and the broker is not the cause: the breaker's state names the lease, also for the moments until the
// first answer after it is held again.
func TestG39_ALapsedLeaseIsNotShownAsABrokerOutage(t *testing.T) {
	var may atomic.Bool
	run(t, Config{May: may.Load}, func(b *bench) {
		shown := func(breaker string, metric float64) {
			t.Helper()
			synctest.Wait()
			if s := b.Snapshot(); s.Breaker != breaker || gaugeOf(t, b.Reg, "canal_outbox_breaker_state") != metric {
				t.Errorf("breaker %q, metric %v, reason %q; want %q, %v", s.Breaker, gaugeOf(t, b.Reg, "canal_outbox_breaker_state"), s.Trouble, breaker, metric)
			}
		}
		shown("lease-not-held", 3)
		b.Sink.Set(func() {
			b.Sink.Fenced, b.Sink.Answer = true, flowtest.Always(outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: sink.ErrMayNot.Error()})
		})
		b.OfferRows(flowtest.Row(1), flowtest.Row(2), flowtest.Row(3), flowtest.Row(4), flowtest.Row(5), flowtest.Row(6))
		time.Sleep(2 * time.Minute)
		shown("lease-not-held", 3)
		if s := b.Snapshot(); s.Trouble != sink.ErrMayNot.Error() || !s.UnansweredSince.IsZero() {
			t.Errorf("reason %q, unanswered since %v: the broker was not asked", s.Trouble, s.UnansweredSince)
		}
		may.Store(true)
		shown("lease-not-held", 3) // no message was answered yet
		b.Sink.Set(func() { b.Sink.Fenced, b.Sink.Answer = false, flowtest.Always(outbox.Outcome{}) })
		time.Sleep(10 * time.Second)
		shown("closed", 0)
		b.Sink.Set(func() {
			b.Sink.Down, b.Sink.Answer = true, flowtest.Always(outbox.Outcome{Class: outbox.ClassOutage, Reason: "refused"})
		})
		b.OfferRows(flowtest.Row(11), flowtest.Row(12), flowtest.Row(13), flowtest.Row(14), flowtest.Row(15), flowtest.Row(16))
		time.Sleep(100 * time.Millisecond)
		shown("open", 1)
	})
}

func gaugeOf(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
