package operator

import (
	"slices"
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
		var st Status
		if err := m.Show(&st, begin); err != nil {
			t.Fatal(err)
		}
		m.past = m.past[1:]
		for _, x := range c.measured {
			h.Observe(x)
		}
		err := m.Show(&st, begin.Add(time.Second))
		got := st.Throughput
		if err != nil || got.LatencyP99 == nil {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		if p := *got.LatencyP99 / 1000; p < c.p99[0] || p > c.p99[1] {
			t.Errorf("%s: p99 %v s, want %v", name, p, c.p99)
		}
	}
}

// A topic's errors are told apart from its messages, and the topics with errors come first.
func TestTopics(t *testing.T) {
	reg := prometheus.NewRegistry()
	messages := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "canal_outbox_messages_total"}, []string{"table", "topic", "path", "outcome"})
	reg.MustRegister(messages)
	messages.WithLabelValues("a", "orders", "binlog", "sent").Add(10)
	begin := time.Now()
	m := NewMeter(reg, begin.Add(-time.Minute))
	var st Status
	if err := m.Show(&st, begin); err != nil {
		t.Fatal(err)
	}
	m.past = m.past[1:]
	messages.WithLabelValues("b", "orders", "sweep", "sent").Add(20)
	messages.WithLabelValues("a", "payments", "binlog", "permanent").Add(4)
	if err := m.Show(&st, begin.Add(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	want := []TopicStatus{{Topic: "payments", ErrorRate: 2, Errors: 4}, {Topic: "orders", Rate: 10, Published: 30}}
	if got := st.Throughput.Topics; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
