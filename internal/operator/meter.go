package operator

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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
	swept     uint64
	latency   []*dto.Bucket // cumulative
	count     uint64
	seconds   float64 // of all latencies together
	memory    int64
	topics    map[string]answers
}

// answers are those of the broker to one topic's messages.
type answers struct{ sent, other uint64 }

// Meter computes rates from the metrics: it compares each reading with the oldest one of the last seconds, and the first one
// with the start. So it costs nothing while no status is requested.
type Meter struct {
	gatherer prometheus.Gatherer

	mu   sync.Mutex
	past []reading
}

// NewMeter returns a meter of the metrics of a process that began at start.
func NewMeter(g prometheus.Gatherer, start time.Time) *Meter {
	return &Meter{gatherer: g, past: []reading{{at: start}}}
}

// Show sets the totals, the speed since the oldest look of the last seconds, and the memory.
func (m *Meter) Show(st *Status, now time.Time) error {
	current, before, err := m.look(now)
	if err != nil {
		return err
	}
	t := &st.Throughput
	st.MemoryBytes, t.Topics = current.memory, topics(current, before)
	t.Published, t.Retried, t.Failed, t.Deferred, t.Swept = current.published, current.retried, current.failed, current.deferred, current.swept
	if span := now.Sub(before.at).Seconds(); span > 0 {
		t.Rate = float64(current.published-before.published) / span
	}
	if p50, ok := quantile(.5, current, before); ok {
		p99, _ := quantile(.99, current, before)
		t.LatencyP50, t.LatencyP99 = &p50, &p99
	}
	return nil
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
			current.topics = byTopic(f)
			current.published, current.swept = sum(f, "outcome", "sent"), sum(f, "outcome", "sent", "path", "sweep")
		case "canal_outbox_retries_total":
			current.retried = sum(f)
		case "canal_outbox_failed_total":
			current.failed = sum(f)
		case "canal_outbox_deferred_total":
			current.deferred = sum(f)
		case "canal_outbox_publish_latency_seconds":
			h := f.GetMetric()[0].GetHistogram()
			current.latency, current.count, current.seconds = h.GetBucket(), h.GetSampleCount(), h.GetSampleSum()
		case "process_resident_memory_bytes":
			current.memory = int64(f.GetMetric()[0].GetGauge().GetValue())
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

// sum adds the series that have all the labels, given as alternating names and values.
func sum(f *dto.MetricFamily, labels ...string) (total uint64) {
	for _, m := range f.GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && has[labels[i]] == labels[i+1]
		}
		if matches {
			total += uint64(m.GetCounter().GetValue())
		}
	}
	return total
}

// quantile estimates a latency between two readings, in milliseconds, by interpolation inside the bucket; false when nothing was
// measured between them. The sum of all latencies bounds the estimate: the minimum of each bucket is subtracted from it, and the
// rest limits how far the values of this bucket lie above its lower end.
func quantile(q float64, current, before reading) (float64, bool) {
	total := float64(current.count - before.count)
	if total == 0 {
		return 0, false
	}
	var counts, lows []float64
	low, below := 0.0, 0.0
	for i := 0; i <= len(current.latency); i++ { // the last one is that beyond the bounds
		count := total
		high := math.Inf(1)
		if i < len(current.latency) {
			high, count = current.latency[i].GetUpperBound(), float64(current.latency[i].GetCumulativeCount())
			if i < len(before.latency) {
				count -= float64(before.latency[i].GetCumulativeCount())
			}
		}
		counts, lows = append(counts, count-below), append(lows, low)
		low, below = high, count
	}
	rank, spare := q*total, current.seconds-before.seconds // spare: what the latencies have above their buckets' lower ends, together
	for i := range counts {
		spare -= counts[i] * lows[i]
	}
	spare = max(0, spare)
	for i, n := range counts {
		if n >= rank && n > 0 {
			high := lows[i] + min(2*spare/n, spare)
			if i < len(current.latency) {
				high = min(high, current.latency[i].GetUpperBound())
			}
			return 1000 * (lows[i] + (high-lows[i])*rank/n), true
		}
		rank -= n
	}
	return 1000 * low, true
}
