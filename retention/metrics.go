package retention

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Ends of a pass.
const (
	runComplete = "complete" // every table to its end
	runWindow   = "window"   // the hours were over, or did not begin
	runFailed   = "failed"   // the database did not answer every query
)

// Results of a row.
const (
	rowDeleted  = "deleted"
	rowArchived = "archived"
	rowLogged   = "logged"  // a FAILED row, in the failed-message log
	rowSkipped  = "skipped" // locked or changed
	rowRefused  = "refused" // by the server, for its data
)

// action returns what an expiry does with a row.
func action(e table.Expiry) string {
	switch e.Into {
	case "":
		return rowDeleted
	case table.ArchiveSuffix:
		return rowArchived
	}
	return rowLogged
}

type metrics struct {
	runs      *prometheus.CounterVec
	rowCounts *prometheus.CounterVec
	paused    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, tables []string, sinceSuccess func() time.Duration) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		runs: f.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_retention_runs_total", Help: "Passes of the retention over all tables, by result.",
		}, []string{"result"}),
		rowCounts: f.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_retention_rows_total",
			Help: "Final rows that were old enough to leave, by result: deleted, archived and logged have left; skipped (locked or " +
				"changed) and refused count each attempt.",
		}, []string{"table", "action"}),
		paused: f.NewGauge(prometheus.GaugeOpts{
			Name: "canal_outbox_retention_paused", Help: "1 while the retention waits for the server's purge or for the replica.",
		}),
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "canal_outbox_retention_last_success_age_seconds",
		Help: "Time since the last complete pass of the retention, at first since the start; 0 while it is off.",
	}, func() float64 { return sinceSuccess().Seconds() })
	for _, result := range []string{runComplete, runWindow, runFailed} {
		m.runs.WithLabelValues(result)
	}
	for _, name := range tables {
		for _, action := range []string{rowDeleted, rowArchived, rowLogged, rowSkipped, rowRefused} {
			m.rows(name, action)
		}
	}
	return m
}

func (m *metrics) rows(table, action string) prometheus.Counter {
	return m.rowCounts.WithLabelValues(table, action)
}
