package history

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// relay is what a recorder watches, as the test sets it.
type relay struct {
	mu           sync.Mutex
	sent, failed uint64
	rows         int64
	lag          *float64
	breaker      string
}

func (r *relay) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *relay) watched() Watched {
	return Watched{
		Status: func(context.Context) operator.Status {
			r.mu.Lock()
			defer r.mu.Unlock()
			return operator.Status{
				Version: "1.2.3", Throughput: operator.ThroughputStatus{Published: r.sent, Failed: r.failed}, Source: operator.SourceStatus{LagSeconds: r.lag},
				Tables: []operator.TableStatus{{Rows: map[string]int64{"pending": r.rows}}, {Rows: map[string]int64{"pending": 1}}},
			}
		},
		Conditions: func() []Condition {
			r.mu.Lock()
			defer r.mu.Unlock()
			return []Condition{{Kind: "breaker", State: r.breaker}}
		},
	}
}

// run records for the time that f takes.
func run(r *Recorder, w Watched, f func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx, w)
	}()
	synctest.Wait()
	f()
	cancel()
	<-ended
}

func ago(d, step time.Duration) operator.Span {
	return operator.Span{From: time.Now().Add(-d), To: time.Now(), Step: step}
}

// series is one of the answer, with its nulls as -1.
func numbers(t operator.Timeline, name string) (out []float64) {
	for _, v := range t.Series[name] {
		if v == nil {
			out = append(out, -1)
		} else {
			out = append(out, *v)
		}
	}
	return out
}

func same(t *testing.T, what string, got []float64, want ...float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
	for i := range got {
		if d := got[i] - want[i]; d > 1e-3 || d < -1e-3 {
			t.Errorf("%s: got %v, want %v", what, got, want)
			return
		}
	}
}

func TestWhatStatusShowedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, lag := NewRecorder(), 2.5
		r := &relay{breaker: "closed", rows: 4}
		run(rec, r.watched(), func() {
			r.set(func() { r.sent, r.lag = 500, &lag })
			time.Sleep(10500 * time.Millisecond)
			r.set(func() { r.breaker = "open" })
			time.Sleep(3 * time.Second)
			r.set(func() { r.sent, r.failed, r.lag, r.breaker = 520, 10, nil, "closed" })
			time.Sleep(8 * time.Second)
		})
		fine := rec.Timeline(ago(time.Minute, 10*time.Second), []operator.Mark{{At: time.Now().Add(-30 * time.Second), Kind: "gap", Text: "gap: purged"}})
		same(t, "rate", numbers(fine, "sent_per_second"), 50, 2)
		same(t, "failures", numbers(fine, "failed_per_second"), 0, 1)
		same(t, "lag", numbers(fine, "lag_seconds"), 2.5, -1)
		same(t, "latency", numbers(fine, "latency_p99_ms"), -1, -1)
		same(t, "rows of all tables", numbers(fine, "pending_rows"), 5, 5)
		var marks []string
		for _, m := range fine.Marks {
			marks = append(marks, m.Kind+": "+m.Text)
		}
		if got := strings.Join(marks, "; "); got != "gap: gap: purged; start: the relay started (1.2.3); breaker: open; breaker: closed" {
			t.Errorf("marks: %s", got)
		}
		coarse := rec.Timeline(ago(time.Minute, time.Minute), nil)
		same(t, "mean of a rate", numbers(coarse, "sent_per_second"), 26)
		same(t, "peak of a lag", numbers(coarse, "lag_seconds"), 2.5)
		if _, err := json.Marshal(coarse); err != nil {
			t.Error(err)
		}
	})
}

// A day is kept and no more, a time without the process is shown as unknown, and counters that restart make no peak.
func TestADayIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, r := NewRecorder(), &relay{sent: 1000}
		run(rec, r.watched(), func() { time.Sleep(26*time.Hour + time.Second) })
		if len(rec.samples) != maxSamples {
			t.Errorf("%d samples are kept, want %d", len(rec.samples), maxSamples)
		}
		if n := len(rec.Timeline(ago(48*time.Hour, 10*time.Second), nil).At); n != maxSamples {
			t.Errorf("%d steps are shown, want %d", n, maxSamples)
		}
		time.Sleep(30 * time.Second)
		r.sent = 0
		run(rec, r.watched(), func() {
			r.set(func() { r.sent = 10 })
			time.Sleep(10500 * time.Millisecond)
		})
		same(t, "after a pause", numbers(rec.Timeline(ago(50*time.Second, 10*time.Second), nil), "sent_per_second"), 0, -1, -1, -1, -1, 1)
		for range 2 * maxMarks {
			rec.Mark(time.Now(), "breaker", "open")
		}
		if len(rec.marks) != maxMarks {
			t.Errorf("%d marks are kept, want %d", len(rec.marks), maxMarks)
		}
	})
}

// A clock that was wrong for a while neither breaks the order nor makes an endless answer.
func TestAClockThatWasWrong(t *testing.T) {
	rec, now := NewRecorder(), time.Now()
	for _, at := range []time.Duration{-30 * time.Second, 1e6 * time.Hour, -10 * time.Second, -20 * time.Second} {
		rec.add(sample{at: now.Add(at).Unix()})
	}
	at := rec.Timeline(operator.Span{From: now.Add(-time.Hour), To: now.Add(time.Second), Step: 10 * time.Second}, nil).At
	if len(at) != 3 || at[0] >= at[1] || at[1] >= at[2] {
		t.Errorf("got %v", at)
	}
}
