package history

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"go.uber.org/zap"
)

const (
	watchEvery = time.Second // for what marks are made of; a breaker may be open for seconds only
	maxSamples = int(operator.SampleSpan / operator.SampleStep)
	maxMarks   = 500
)

// Recorder keeps what status showed in the last day, so that the page can say what it was like an hour ago. It takes about
// 600 KiB, whatever happens. It works in the goroutine of Run.
type Recorder struct {
	mu      sync.Mutex
	samples []sample // a ring of maxSamples at most
	next    int      // where the ring continues once it is full
	marks   []operator.Mark

	store    Store // nil: nothing is stored
	log      *zap.Logger
	unsaved  []piece
	nextMark uint64 // number of the next mark in the store
}

// sample is what one look found. NaN stands for what was not known. Fixed and small: there are thousands.
type sample struct {
	at     int64 // Unix seconds
	values [columns]float32
}

// Condition is something whose changes are worth a mark.
type Condition struct {
	Kind  string // of the mark
	State string // in words
}

// Watched is what a recorder looks at.
type Watched struct {
	Status     func(context.Context) operator.Status
	Conditions func() []Condition // cheap; always the same kinds
}

// NewRecorder returns a recorder of nothing yet.
func NewRecorder() *Recorder { return &Recorder{} }

// Run records until the context ends. It may be run again, with other things to watch: the past stays.
func (r *Recorder) Run(ctx context.Context, w Watched) {
	first := w.Status(ctx)
	r.Mark(time.Now(), "start", "the relay started ("+first.Version+")")
	before, known, last := counters(first), map[string]string{}, time.Now()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		r.watch(w.Conditions(), known)
		select {
		case <-ctx.Done():
			r.save()
			return
		case <-tick.C:
		}
		if took := time.Since(last); took >= operator.SampleStep-watchEvery/2 {
			st := w.Status(ctx)
			now := counters(st)
			r.add(newSample(st, now.since(before), took))
			before, last = now, last.Add(took)
		}
		r.save()
	}
}

// watch marks the conditions that are not as they were.
func (r *Recorder) watch(conditions []Condition, known map[string]string) {
	for _, c := range conditions {
		if old, seen := known[c.Kind]; seen && old != c.State {
			r.Mark(time.Now(), c.Kind, c.State)
		}
		known[c.Kind] = c.State
	}
}

// Mark notes something that happened.
func (r *Recorder) Mark(at time.Time, kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.marks) == maxMarks {
		r.marks = append(r.marks[:0], r.marks[1:]...)
	}
	m := operator.Mark{At: at, Kind: kind, Text: text}
	r.marks = append(r.marks, m)
	if data, err := json.Marshal(m); err == nil { // a time beyond the year 9999 has no JSON
		r.remember(markSlots+r.nextMark, data)
		r.nextMark = (r.nextMark + 1) % maxMarks
	}
}

func (r *Recorder) add(s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remember(s.slot(), s.encode())
	if len(r.samples) < maxSamples {
		r.samples = append(r.samples, s)
		return
	}
	r.samples[r.next] = s
	r.next = (r.next + 1) % maxSamples
}

// totals are the counters of a status, of which rates are made.
type totals [swept + 1]uint64

func counters(st operator.Status) totals {
	t := st.Throughput
	return totals{sent: t.Published, failed: t.Failed, retried: t.Retried, deferred: t.Deferred, swept: t.Swept}
}

// since is what was added. A counter that is smaller than before has restarted.
func (t totals) since(before totals) totals {
	for c := range t {
		if t[c] >= before[c] {
			t[c] -= before[c]
		}
	}
	return t
}

// orUnknown is a value, NaN for nil.
func orUnknown[T int64 | float64](v *T) float64 {
	if v == nil {
		return math.NaN()
	}
	return float64(*v)
}

func newSample(st operator.Status, grown totals, took time.Duration) sample {
	s := sample{at: time.Now().Unix()}
	set := func(c column, v float64) { s.values[c] = float32(v) }
	for c, n := range grown {
		set(column(c), float64(n)/took.Seconds())
	}
	set(p50, orUnknown(st.Throughput.LatencyP50))
	set(p99, orUnknown(st.Throughput.LatencyP99))
	set(lagSeconds, orUnknown(st.Source.LagSeconds))
	set(lagBytes, orUnknown(st.Source.BehindBytes))
	for c, status := range map[column]string{pendingRows: "pending", sendingRows: "sending", failedRows: "failed", delayedRows: "delayed"} {
		set(c, orUnknown(total(st.Tables, status)))
	}
	set(inFlight, float64(st.InFlight.Messages))
	set(unwritten, float64(st.InFlight.AckPending))
	set(memory, math.NaN())
	if st.MemoryBytes > 0 {
		set(memory, float64(st.MemoryBytes))
	}
	return s
}

// total adds the rows of a status over all tables; nil before they were counted.
func total(tables []operator.TableStatus, status string) (n *int64) {
	for _, t := range tables {
		if rows, is := t.Rows[status]; is {
			if n == nil {
				n = new(int64)
			}
			*n += rows
		}
	}
	return n
}
