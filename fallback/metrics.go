package fallback

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Results of a sweep.
const (
	runComplete = "complete"
	runFailed   = "failed"  // the database did not answer every query
	runBreaker  = "breaker" // the broker accepts no messages
	runPaused   = "paused"  // an operator has stopped the intake
	runMoved    = "moved"   // the position was moved
)

// Results of a row in a sweep.
const (
	rowWaiting   = "waiting"   // due later
	rowSuspended = "suspended" // of a suspended topic
	rowOwned     = "owned"     // already owned
	rowGone      = "gone"      // changed before it was claimed, or claimed by another process
	rowNew       = "new"       // published for the first time: not delivered by the log
	rowRetry     = "retry"     // published again after a refusal
	rowReclaimed = "reclaimed" // published under an expired claim
)

type metrics struct {
	runs      *prometheus.CounterVec
	seconds   prometheus.Histogram
	rowCounts *prometheus.CounterVec

	replicaErrors prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, tables []string, lastSuccess func() int64, triggers *Triggers) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		runs: f.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_sweep_runs_total", Help: "Sweeps over all tables, by result.",
		}, []string{"result"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "canal_outbox_sweep_seconds", Help: "Time of a complete sweep, including its waits for the binlog reader and for room.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}),
		replicaErrors: f.NewCounter(prometheus.CounterOpts{
			Name: "canal_outbox_sweep_replica_errors_total",
			Help: "Tables that a sweep read on the primary because the server of fallback.read_from did not show their rows.",
		}),
		rowCounts: f.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_sweep_rows_total",
			Help: "Rows that sweeps or timers found, by result: waiting, suspended and owned count each time a row is found; new, retry and " +
				"reclaimed were published. deferred_total says why the log did not deliver new ones.",
		}, []string{"table", "result"}),
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "canal_outbox_sweep_last_success_age_seconds", Help: "Time since the last complete sweep, at first since the start.",
	}, func() float64 { return time.Since(time.Unix(0, lastSuccess())).Seconds() })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "canal_outbox_timers", Help: "Rows that timers hold because they become due next; others that wait are found later.",
	}, func() float64 {
		n := 0
		for _, t := range triggers.timers {
			n += t.len()
		}
		return float64(n)
	})
	for _, result := range []string{runComplete, runFailed, runBreaker, runPaused, runMoved} {
		m.runs.WithLabelValues(result)
	}
	for _, table := range tables {
		for _, result := range []string{rowWaiting, rowSuspended, rowOwned, rowGone, rowNew, rowRetry, rowReclaimed} {
			m.rows(table, result)
		}
	}
	return m
}

func (m *metrics) rows(table, result string) prometheus.Counter {
	return m.rowCounts.WithLabelValues(table, result)
}
