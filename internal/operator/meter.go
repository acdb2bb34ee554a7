package operator

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/sink"
)

// window is the time over which rates and percentiles are shown.
const window = 10 * time.Second

// maxTopics bounds the topics that status lists.
const maxTopics = 50

// Totals are what the parts of the relay have counted since the start.
type Totals struct {
	sink.Tally
	Retried, Failed, Deferred uint64
}

// reading is the totals at one time.
type reading struct {
	at time.Time
	Totals
}

// Meter computes rates from the totals: it compares each reading with the oldest one of the last seconds, and the first one
// with the start. So it costs nothing while no status is requested.
type Meter struct {
	mu   sync.Mutex
	past []reading
}

// NewMeter returns a meter of a process that began at start.
func NewMeter(start time.Time) *Meter { return &Meter{past: []reading{{at: start}}} }

// Show sets the totals, the speed since the oldest reading of the last seconds, and the memory.
func (m *Meter) Show(st *Status, totals Totals, now time.Time) {
	current, before := m.compare(reading{now, totals})
	t := &st.Throughput
	st.MemoryBytes, t.Topics = residentBytes(), topics(current, before)
	t.Published, t.Retried, t.Failed, t.Deferred, t.Swept = current.Sent, current.Retried, current.Failed, current.Deferred, current.Swept
	if span := now.Sub(before.at).Seconds(); span > 0 {
		t.Rate = float64(current.Sent-before.Sent) / span
	}
	if p50, ok := quantile(.5, current, before); ok {
		p99, _ := quantile(.99, current, before)
		t.LatencyP50, t.LatencyP99 = &p50, &p99
	}
}

// compare returns a reading and the one to compare it with. Totals never become smaller: a relay that stops shows what it counted last.
func (m *Meter) compare(current reading) (now, before reading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.past) > 1 && current.at.Sub(m.past[1].at) >= window {
		m.past = m.past[1:]
	}
	newest := m.past[len(m.past)-1]
	if current.Sent < newest.Sent {
		current.Totals = newest.Totals
	}
	if current.at.Sub(newest.at) > window/20 { // several callers do not make the window short
		m.past = append(m.past, current)
	}
	return current, m.past[0]
}

// residentBytes is the memory of the process; 0 where the system does not say it (proc_pid_statm(5)).
func residentBytes() (bytes int64) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

// topics are the busiest ones, those with errors first.
func topics(current, before reading) []TopicStatus {
	list := []TopicStatus{}
	span := current.at.Sub(before.at).Seconds()
	for topic, now := range current.Topics {
		then, t := before.Topics[topic], TopicStatus{Topic: topic, Published: now.Sent, Errors: now.Other}
		if span > 0 {
			t.Rate, t.ErrorRate = float64(now.Sent-then.Sent)/span, float64(now.Other-then.Other)/span
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b TopicStatus) int {
		return cmp.Or(cmp.Compare(b.ErrorRate, a.ErrorRate), cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Published, a.Published), cmp.Compare(a.Topic, b.Topic))
	})
	return list[:min(len(list), maxTopics)]
}

// quantile estimates a latency between two readings, in milliseconds, by interpolation inside its range; false when nothing was
// measured between them. The sum of all latencies bounds the estimate: the lower end of each range is subtracted from it, and the
// rest limits how far the values of this range lie above its lower end.
func quantile(q float64, current, before reading) (float64, bool) {
	bounds := append([]float64{0}, sink.LatencyBounds[:]...)
	var counts [len(current.Latency)]float64
	total, spare := 0.0, current.Seconds-before.Seconds // spare: what the latencies have above the lower ends of their ranges, together
	for i := range counts {
		counts[i] = float64(current.Latency[i] - before.Latency[i])
		total += counts[i]
		spare -= counts[i] * bounds[i]
	}
	if total == 0 {
		return 0, false
	}
	rank := q * total
	spare = max(0, spare)
	for i, n := range counts {
		if n >= rank && n > 0 {
			low, high := bounds[i], math.Inf(1)
			if i+1 < len(bounds) {
				high = bounds[i+1]
			}
			high = min(high, low+2*spare/n, low+spare)
			return 1000 * (low + (high-low)*rank/n), true
		}
		rank -= n
	}
	return 1000 * bounds[len(bounds)-1], true
}
