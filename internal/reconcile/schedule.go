package reconcile

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// firstAfter is how long after its start a schedule runs for the first time: a relay that restarts each day compares too.
const firstAfter = 10 * time.Minute

// Schedule compares again and again. The zero Every never does. Run is its goroutine.
type Schedule struct {
	every   time.Duration
	compare func(ctx context.Context, window time.Duration) (Report, error)
	log     *zap.Logger

	differences *prometheus.GaugeVec

	mu    sync.Mutex
	state State
	since time.Time // of Run, until the first success
}

// State is what the last comparison found.
type State struct {
	Running                      bool
	Last                         time.Time // the end of the last one that came to its end; zero before it
	Missing, Different, Repeated int64
	Error                        string // of the last one; "" when it came to its end
}

// NewSchedule makes a Schedule. compare compares the rows of the last window. It does no I/O; its metrics are registered on reg.
func NewSchedule(every time.Duration, compare func(ctx context.Context, window time.Duration) (Report, error), log *zap.Logger, reg prometheus.Registerer) *Schedule {
	f := promauto.With(reg)
	s := &Schedule{every: every, compare: compare, log: log, differences: f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "canal_outbox_reconcile_differences", Help: "Rows of the last scheduled comparison that are missing in their topic, have another body there, or are there repeatedly.",
	}, []string{"kind"})}
	for _, kind := range []string{"missing", "different", "repeated"} {
		s.differences.WithLabelValues(kind).Set(0)
	}
	f.NewGauge(prometheus.GaugeOpts{
		Name: "canal_outbox_reconcile_interval_seconds", Help: "Time between two scheduled comparisons (reconcile.every); 0 when there are none.",
	}).Set(every.Seconds())
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "canal_outbox_reconcile_last_success_age_seconds", Help: "Time since a scheduled comparison came to its end, before the first since the start; 0 when there are none.",
	}, s.age)
	return s
}

func (s *Schedule) age() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0
	}
	return time.Since(s.since).Seconds()
}

// State returns what is known; on is false when nothing is ever compared.
func (s *Schedule) State() (now State, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.every > 0
}

// Run compares until the context ends. Each comparison is of the rows of the last two intervals: a row that was not sent at the one is
// compared at the next. One that fails is logged, and the next one follows after the interval.
func (s *Schedule) Run(ctx context.Context) {
	if s.every <= 0 {
		return
	}
	s.mu.Lock()
	s.since = time.Now()
	s.mu.Unlock()
	for wait := min(s.every, firstAfter); outbox.Wait(ctx, wait, nil); wait = s.every {
		s.once(ctx)
	}
}

func (s *Schedule) once(ctx context.Context) {
	s.set(func(now *State) { now.Running = true })
	report, err := s.compare(ctx, 2*s.every)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.log.Warn("the scheduled comparison of the tables with the topics failed; the next one follows after reconcile.every", zap.Error(err))
		s.set(func(now *State) { now.Running, now.Error = false, err.Error() })
		return
	}
	found := State{Last: time.Now()}
	for _, g := range report.Tables {
		found.Missing, found.Different, found.Repeated = found.Missing+g.Missing, found.Different+g.Different, found.Repeated+g.Repeated
	}
	for kind, n := range map[string]int64{"missing": found.Missing, "different": found.Different, "repeated": found.Repeated} {
		s.differences.WithLabelValues(kind).Set(float64(n))
	}
	if found.Missing+found.Different > 0 {
		s.log.Error("rows are SENT in their table, and are missing in their topic or have another body there: `canal-outbox reconcile` names them",
			zap.Int64("missing", found.Missing), zap.Int64("different", found.Different), zap.Time("from", report.From), zap.Time("to", report.To))
	}
	s.set(func(now *State) { *now = found })
	s.mu.Lock()
	s.since = found.Last
	s.mu.Unlock()
}

func (s *Schedule) set(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}
