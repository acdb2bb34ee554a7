package operator

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// result is a message of a topic that was acknowledged after a time, or refused.
func result(topic string, path outbox.Path, class outbox.Class, took float64, now time.Time) *sink.Result {
	m := &outbox.Message{Topic: topic, Path: path, Since: now.Add(-time.Duration(took * float64(time.Second)))}
	return &sink.Result{Message: m, Outcome: outbox.Outcome{Class: class}}
}

// A percentile of few messages lies inside of a wide range. It is not above what was measured, and never negative.
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
		begin := time.Now()
		var totals Totals
		totals.Count(result("orders", outbox.PathBinlog, outbox.ClassNone, 299, begin), begin) // before the first look, and no part of it
		m := NewMeter(begin.Add(-time.Minute))
		var st Status
		m.Show(&st, totals, begin)
		m.past = m.past[1:]
		for _, x := range c.measured {
			totals.Count(result("orders", outbox.PathBinlog, outbox.ClassNone, x, begin), begin)
		}
		m.Show(&st, totals, begin.Add(time.Second))
		got := st.Throughput
		if got.LatencyP99 == nil {
			t.Fatalf("%s: %+v", name, got)
		}
		if p := *got.LatencyP99 / 1000; p < c.p99[0] || p > c.p99[1] {
			t.Errorf("%s: p99 %v s, want %v", name, p, c.p99)
		}
	}
}

// A topic's errors are told apart from its messages, and the topics with errors come first. A relay that stops, and counts nothing, shows
// what it counted last.
func TestTopics(t *testing.T) {
	begin := time.Now()
	var totals Totals
	count := func(n int, topic string, path outbox.Path, class outbox.Class) {
		totals.Topics = maps.Clone(totals.Topics) // as the owner hands it over
		for range n {
			totals.Count(result(topic, path, class, 1, begin), begin)
		}
	}
	count(10, "orders", outbox.PathBinlog, outbox.ClassNone)
	m := NewMeter(begin.Add(-time.Minute))
	var st Status
	m.Show(&st, totals, begin)
	m.past = m.past[1:]
	count(20, "orders", outbox.PathSweep, outbox.ClassNone)
	count(4, "payments", outbox.PathBinlog, outbox.ClassPermanent)
	m.Show(&st, totals, begin.Add(2*time.Second))
	want := []TopicStatus{{Topic: "payments", ErrorRate: 2, Errors: 4}, {Topic: "orders", Rate: 10, Published: 30}}
	if got := st.Throughput; !slices.Equal(got.Topics, want) || got.Published != 30 || got.Swept != 20 || got.Rate != 10 || st.MemoryBytes == 0 {
		t.Errorf("got %+v, %d bytes, want %+v", got, st.MemoryBytes, want)
	}
	m.Show(&st, Totals{}, begin.Add(3*time.Second))
	if got := st.Throughput; got.Published != 30 || len(got.Topics) != 2 || got.Rate < 0 || got.Rate > 20 {
		t.Errorf("of a relay that stops: %+v", got)
	}
}
