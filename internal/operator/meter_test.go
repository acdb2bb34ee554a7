package operator

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A percentile of few messages lies inside of a wide bucket. It is not above what was measured, and never negative.
func TestPercentilesAreNotAboveWhatWasMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		measured []float64 // seconds
		p99      [2]float64
	}{
		"one":               {[]float64{65}, [2]float64{60, 65}},
		"fast ones and one": {[]float64{.001, .001, .001, 65}, [2]float64{60, 65.1}},
		"equal ones":        {[]float64{61, 61, 61, 61}, [2]float64{60, 62}},
		"beyond the bounds": {[]float64{1000}, [2]float64{300, 1000}},
		"fast":              {[]float64{.0011, .0012}, [2]float64{.001, .0013}},
	} {
		reg := prometheus.NewRegistry()
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "canal_outbox_publish_latency_seconds", Buckets: []float64{.001, .002, 60, 300}})
		reg.MustRegister(h)
		h.Observe(299) // before the first look, and no part of it
		begin := time.Now()
		m := NewMeter(reg, begin.Add(-time.Minute))
		if _, err := m.Throughput(begin); err != nil {
			t.Fatal(err)
		}
		m.past = m.past[1:]
		for _, x := range c.measured {
			h.Observe(x)
		}
		got, err := m.Throughput(begin.Add(time.Second))
		if err != nil || got.LatencyP99 == nil {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		if p := *got.LatencyP99 / 1000; p < c.p99[0] || p > c.p99[1] {
			t.Errorf("%s: p99 %v s, want %v", name, p, c.p99)
		}
	}
}
