package operator

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/canal-outbox/canal-outbox/internal/admin"
)

// window is the time over which rates and percentiles are shown.
const window = 10 * time.Second

// reading is the metrics that status shows, at one moment.
type reading struct {
	at        time.Time
	published uint64
	retried   uint64
	failed    uint64
	deferred  uint64
	latency   []*dto.Bucket // cumulative
	count     uint64
}

// Meter makes rates of the metrics: each look is compared with the oldest one of the last seconds, the first with the
// start. So it costs nothing while nobody looks.
type Meter struct {
	gatherer prometheus.Gatherer

	mu   sync.Mutex
	past []reading
}

// NewMeter returns a meter of the metrics of a process that began at start.
func NewMeter(g prometheus.Gatherer, start time.Time) *Meter {
	return &Meter{gatherer: g, past: []reading{{at: start}}}
}

// Throughput returns the totals, and the speed since the oldest look of the last seconds.
func (m *Meter) Throughput(now time.Time) (t admin.ThroughputStatus, err error) {
	current, before, err := m.look(now)
	if err != nil {
		return t, err
	}
	t.Published, t.Retried, t.Failed, t.Deferred = current.published, current.retried, current.failed, current.deferred
	if span := now.Sub(before.at).Seconds(); span > 0 {
		t.Rate = float64(current.published-before.published) / span
	}
	if p50, ok := quantile(.5, current, before); ok {
		p99, _ := quantile(.99, current, before)
		t.LatencyP50, t.LatencyP99 = &p50, &p99
	}
	return t, nil
}

// look reads the metrics and returns them with those to compare with.
func (m *Meter) look(now time.Time) (current, before reading, err error) {
	families, err := m.gatherer.Gather()
	if err != nil {
		return reading{}, reading{}, err
	}
	current = reading{at: now}
	for _, f := range families {
		switch f.GetName() {
		case "canal_outbox_messages_total":
			current.published = sum(f, "outcome", "sent")
		case "canal_outbox_retries_total":
			current.retried = sum(f, "", "")
		case "canal_outbox_failed_total":
			current.failed = sum(f, "", "")
		case "canal_outbox_deferred_total":
			current.deferred = sum(f, "", "")
		case "canal_outbox_publish_latency_seconds":
			h := f.GetMetric()[0].GetHistogram()
			current.latency, current.count = h.GetBucket(), h.GetSampleCount()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.past) > 1 && now.Sub(m.past[1].at) >= window {
		m.past = m.past[1:]
	}
	before = m.past[0]
	if now.Sub(m.past[len(m.past)-1].at) > window/20 { // several lookers do not make the window short
		m.past = append(m.past, current)
	}
	return current, before, nil
}

func sum(f *dto.MetricFamily, label, value string) (total uint64) {
	for _, m := range f.GetMetric() {
		matches := label == ""
		for _, l := range m.GetLabel() {
			matches = matches || l.GetName() == label && l.GetValue() == value
		}
		if matches {
			total += uint64(m.GetCounter().GetValue())
		}
	}
	return total
}

// quantile estimates a latency between two readings, in milliseconds, by interpolation inside the bucket; false when
// nothing was measured between them.
func quantile(q float64, current, before reading) (float64, bool) {
	total := current.count - before.count
	if total == 0 {
		return 0, false
	}
	rank, low, lowCount := q*float64(total), 0.0, 0.0
	for i, b := range current.latency {
		count := float64(b.GetCumulativeCount())
		if i < len(before.latency) {
			count -= float64(before.latency[i].GetCumulativeCount())
		}
		if count >= rank && !math.IsInf(b.GetUpperBound(), 1) {
			return 1000 * (low + (b.GetUpperBound()-low)*(rank-lowCount)/max(count-lowCount, 1)), true
		}
		low, lowCount = b.GetUpperBound(), count
	}
	return 1000 * low, true
}
