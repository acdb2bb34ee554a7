package operator

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
)

// sampleEvery is how often rows are counted by status; a count that takes long is repeated more slowly.
const sampleEvery = 10 * time.Second

// Sampler counts the rows of the tables now and then, by the status index, for metrics and status.
type Sampler struct {
	count func(context.Context) ([]query.Counts, error)
	log   *zap.Logger

	states, oldest, claims, retry, held *prometheus.GaugeVec

	mu   sync.Mutex
	last []query.Counts
	at   time.Time // of the last counts, or of the making
}

// NewSampler returns a sampler that has counted nothing yet; count is asked again and again by Run.
func NewSampler(count func(context.Context) ([]query.Counts, error), reg prometheus.Registerer, log *zap.Logger) *Sampler {
	f := promauto.With(reg)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	s := &Sampler{
		count: count, log: log, at: time.Now(),
		states: gauge("canal_outbox_rows",
			"Rows by status, sampled; pending ones are due, delayed ones later. Counted up to 100,000 each; sent is an estimate.", "table", "status"),
		oldest: gauge("canal_outbox_oldest_pending_age_seconds",
			"Age of the oldest row that should have been sent, sampled; 0 when there is none.", "table"),
		claims: gauge("canal_outbox_oldest_sending_age_seconds",
			"How far the oldest claim of a SENDING row lies from the database's clock, in either direction, sampled; 0 when there is none.", "table"),
		retry: gauge("canal_outbox_longest_retry_wait_seconds", "How long the retry that is due last has to wait, sampled; 0 when there is none.", "table"),
		held: gauge("canal_outbox_held_unknown_rows",
			"Rows with a status that the configuration does not name, sampled: they are never sent. Counted up to 100,000.", "table"),
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "canal_outbox_rows_sample_age_seconds", Help: "Age of the counts and ages of rows: how long ago they were sampled.",
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return time.Since(s.at).Seconds()
	})
	return s
}

// Run samples until the context ends.
func (s *Sampler) Run(ctx context.Context) {
	failed := false
	for wait := time.Second; outbox.Wait(ctx, wait, nil); {
		began := time.Now()
		counts, err := s.count(ctx)
		wait = max(sampleEvery, 50*time.Since(began)) // at most 2 % of one connection
		if err != nil && !failed && ctx.Err() == nil {
			s.log.Warn("cannot count the rows by status", zap.Error(err))
		}
		failed = err != nil
		s.take(counts, err == nil)
	}
}

// take keeps counts. A table that is missing because it could not be counted keeps its older counts.
func (s *Sampler) take(counts []query.Counts, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if complete {
		s.at = time.Now()
	} else {
		for _, old := range s.last {
			if !slices.ContainsFunc(counts, func(c query.Counts) bool { return c.Table == old.Table }) {
				counts = append(counts, old)
			}
		}
	}
	s.last = counts
	for _, c := range counts {
		for status, n := range c.Rows {
			s.states.WithLabelValues(c.Table, status.String()).Set(float64(n))
		}
		for name, n := range c.States {
			s.states.WithLabelValues(c.Table, name).Set(float64(n))
		}
		s.states.WithLabelValues(c.Table, delayed).Set(float64(c.Delayed))
		s.oldest.WithLabelValues(c.Table).Set(c.OldestPending.Seconds())
		s.claims.WithLabelValues(c.Table).Set(c.OldestSending.Seconds())
		s.held.WithLabelValues(c.Table).Set(float64(c.Rows[outbox.Held]))
		s.retry.WithLabelValues(c.Table).Set(c.LongestRetry.Seconds())
	}
}

// delayed is the name of PENDING rows that are due later, in addition to the names of outbox.Status.
const delayed = "delayed"

// Tables returns the last counts with their age; nothing before the first.
func (s *Sampler) Tables(now time.Time) []TableStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	tables := []TableStatus{}
	for _, c := range s.last {
		age := max(0, now.Sub(c.At).Seconds())
		t := TableStatus{
			Name: c.Table, SampledAt: &c.At, SampledSeconds: &age, SelectFailed: c.SelectFailed,
			OldestPendingSeconds: seconds(c.OldestPending), OldestSendingSeconds: seconds(c.OldestSending),
			LongestRetrySeconds: seconds(c.LongestRetry), CreatedAheadSeconds: seconds(c.CreatedAhead),
		}
		t.Rows, t.Kinds = byStatus(c)
		tables = append(tables, t)
	}
	return tables
}

// seconds is nil for nothing.
func seconds(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}
