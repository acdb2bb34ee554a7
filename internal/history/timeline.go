package history

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// column is one of the values of a sample.
type column int

const (
	sent column = iota
	failed
	retried
	deferred
	swept
	p50
	p99
	lagSeconds
	lagBytes
	pendingRows
	sendingRows
	failedRows
	delayedRows
	inFlight
	unwritten
	memory
	columns
)

// series are the names of the columns in the API. Where several samples become one value it is their mean, or the highest
// one where a peak must not vanish.
var series = [columns]struct {
	name string
	peak bool
}{
	sent:        {"sent_per_second", false},
	failed:      {"failed_per_second", false},
	retried:     {"retried_per_second", false},
	deferred:    {"deferred_per_second", false},
	swept:       {"swept_per_second", false},
	p50:         {"latency_p50_ms", false},
	p99:         {"latency_p99_ms", true},
	lagSeconds:  {"lag_seconds", true},
	lagBytes:    {"lag_bytes", true},
	pendingRows: {"pending_rows", true},
	sendingRows: {"sending_rows", true},
	failedRows:  {"failed_rows", true},
	delayedRows: {"delayed_rows", true},
	inFlight:    {"in_flight_messages", true},
	unwritten:   {"unwritten_rows", true},
	memory:      {"memory_bytes", true},
}

// Timeline returns the past since a time in steps, and the marks in it together with more.
func (r *Recorder) Timeline(span operator.Span, more []operator.Mark) operator.Timeline {
	r.mu.Lock()
	samples := slices.Concat(r.samples[r.next:], r.samples[:r.next])
	marks := slices.Concat(r.marks, more)
	r.mu.Unlock()

	t := operator.Timeline{StepSeconds: int(span.Step / time.Second), At: []int64{}, Series: map[string][]*float64{}}
	from, step := span.From.Unix(), int64(t.StepSeconds)
	// The clock may have been set: what lies in the future or out of order is not what a chart can show.
	samples = slices.DeleteFunc(samples, func(s sample) bool { return s.at <= from || s.at > span.To.Unix() })
	slices.SortStableFunc(samples, func(a, b sample) int { return cmp.Compare(a.at, b.at) })
	for c := range columns {
		t.Series[series[c].name] = []*float64{}
	}
	for len(samples) > 0 {
		end := (samples[0].at + step - 1) / step * step // at whole steps, so that a value does not change from one question to the next
		for n := len(t.At); n > 0 && t.At[n-1]+step < end; n = len(t.At) {
			appendStep(&t, t.At[n-1]+step, nil)
		}
		n := slices.IndexFunc(samples, func(s sample) bool { return s.at > end })
		if n < 0 {
			n = len(samples)
		}
		appendStep(&t, end, samples[:n])
		samples = samples[n:]
	}
	t.Marks = slices.DeleteFunc(marks, func(m operator.Mark) bool { return m.At.Before(span.From) || m.At.After(span.To) })
	slices.SortStableFunc(t.Marks, func(a, b operator.Mark) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return t
}

// appendStep adds one value to each series, null when no sample has it.
func appendStep(t *operator.Timeline, end int64, samples []sample) {
	t.At = append(t.At, end)
	for c := range columns {
		s := series[c]
		t.Series[s.name] = append(t.Series[s.name], summary(samples, c, s.peak))
	}
}

// summary is the mean or the highest of a column; nil when no sample has it.
func summary(samples []sample, c column, peak bool) *float64 {
	highest, sum, n := math.Inf(-1), 0.0, 0
	for _, s := range samples {
		v := float64(s.values[c])
		if math.IsNaN(v) {
			continue
		}
		highest, sum, n = max(highest, v), sum+v, n+1
	}
	if n == 0 {
		return nil
	}
	v := sum / float64(n)
	if peak {
		v = highest
	}
	v, exact := math.Round(v*1000)/1000, v
	if v == 0 && exact != 0 {
		v = exact
	}
	return &v
}
