package app

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// sampleEvery is how often rows are counted by status; a count that takes long is repeated more slowly.
const sampleEvery = 10 * time.Second

// sampler counts the rows of the tables now and then, by the status index, for metrics and status.
type sampler struct {
	rows   *table.Store
	log    *zap.Logger
	states *prometheus.GaugeVec
	oldest *prometheus.GaugeVec

	mu   sync.Mutex
	last []table.Counts
	at   time.Time
}

func newSampler(rows *table.Store, reg prometheus.Registerer, log *zap.Logger) *sampler {
	s := &sampler{
		rows: rows, log: log,
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "canal_outbox_rows", Help: "Rows by status, sampled; sent and held ones up to a limit where counting them would be dear.",
		}, []string{"table", "status"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "canal_outbox_oldest_pending_age_seconds", Help: "Age of the oldest row that should have been sent, sampled; 0 when there is none.",
		}, []string{"table"}),
	}
	reg.MustRegister(s.states, s.oldest)
	return s
}

// run samples until the context ends.
func (s *sampler) run(ctx context.Context) {
	failed := false
	for wait := time.Second; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		counts, err := s.rows.Counts(ctx)
		wait = max(sampleEvery, 50*time.Since(began)) // at most 2 % of one connection
		if err != nil {
			if !failed && ctx.Err() == nil {
				s.log.Warn("cannot count the rows by status", zap.Error(err))
			}
			failed = true
			continue
		}
		failed = false
		s.take(counts)
	}
}

func (s *sampler) take(counts []table.Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.at = counts, time.Now()
	for _, c := range counts {
		for status, n := range c.Rows {
			s.states.WithLabelValues(c.Table, status.String()).Set(float64(n))
		}
		s.oldest.WithLabelValues(c.Table).Set(c.OldestPending.Seconds())
	}
}

// sample returns the last counts and when they were taken; zero before the first.
func (s *sampler) sample() ([]table.Counts, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.at
}
