package reconcile

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

func gauge(t *testing.T, reg *prometheus.Registry, name, kind string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (kind == "" || m.GetLabel()[0].GetValue() == kind) {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no %s{%s}", name, kind)
	return 0
}

// A schedule compares soon after the start and then at each interval, two intervals back; its metrics and its state are those of the last
// comparison, and one that fails leaves the age of the last success growing.
func TestG28_ScheduledComparisons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, began := prometheus.NewRegistry(), time.Now()
		var at []time.Duration
		var fail atomic.Bool
		s := NewSchedule(24*time.Hour, func(_ context.Context, window time.Duration) (Report, error) {
			if window != 48*time.Hour {
				t.Errorf("window %v", window)
			}
			at = append(at, time.Since(began))
			if fail.Load() {
				return Report{}, errors.New("the broker is away")
			}
			return Report{Tables: []Group{{Missing: 2, Different: 1}, {Missing: 1, Repeated: 4}}}, nil
		}, zap.NewNop(), reg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		time.Sleep(time.Hour)
		if now, on := s.State(); !on || now.Missing != 3 || now.Different != 1 || now.Repeated != 4 || now.Running || now.Last.IsZero() {
			t.Errorf("%+v", now)
		}
		if got := gauge(t, reg, "canal_outbox_reconcile_differences", "missing"); got != 3 {
			t.Errorf("missing %v", got)
		}
		fail.Store(true)
		time.Sleep(24 * time.Hour)
		if now, _ := s.State(); now.Error == "" || now.Missing != 3 {
			t.Errorf("after a failure: %+v", now)
		}
		if got := gauge(t, reg, "canal_outbox_reconcile_last_success_age_seconds", ""); got != (24*time.Hour + 50*time.Minute).Seconds() {
			t.Errorf("age %v", got)
		}
		cancel()
		<-done
		if len(at) != 2 || at[0] != firstAfter || at[1] != firstAfter+24*time.Hour {
			t.Errorf("compared at %v", at)
		}
	})
	off := NewSchedule(0, nil, zap.NewNop(), prometheus.NewRegistry())
	off.Run(t.Context())
	if _, on := off.State(); on {
		t.Error("a schedule without an interval is on")
	}
}
