package redelivery

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

type metrics struct {
	retried *prometheus.CounterVec
	errors  prometheus.Counter

	redelivered, marked *prometheus.CounterVec
	givenUp             *prometheus.GaugeVec
	queryErrors         prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, cfg Config) *metrics {
	f := promauto.With(reg)
	byTable := func(name, help string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"table"})
	}
	count := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		retried: byTable("canal_outbox_failed_retried_total", "FAILED rows that were set back to PENDING because of retry.failed_every."),
		errors:  count("canal_outbox_redelivery_errors_total", "Passes on rows to send again that ended with an error of the database."),
		redelivered: byTable("canal_outbox_redelivered_total",
			"Copies of SENT rows that were sent to the broker because no consumer had finished them (tables[].redeliver)."),
		marked: byTable("canal_outbox_redelivery_marked_total",
			"SENT rows that were marked as consumed because the service of state_query reports them as done."),
		givenUp: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "canal_outbox_redelivery_given_up_rows", Help: "SENT rows that were sent again redeliver.max times and that no consumer has finished, in the last pass.",
		}, []string{"table"}),
		queryErrors: count("canal_outbox_redelivery_query_errors_total", "Requests to the service of state_query that got no useful answer."),
	}
	// Queries and alerts need the series before a table is configured.
	if len(cfg.Sent) == 0 {
		cfg.Sent = map[string]table.Redeliver{"": {}}
	}
	if len(cfg.Failed) == 0 {
		cfg.Failed = map[string]time.Duration{"": 0}
	}
	for name := range cfg.Sent {
		m.redelivered.WithLabelValues(name)
		m.marked.WithLabelValues(name)
		m.givenUp.WithLabelValues(name)
	}
	for name := range cfg.Failed {
		m.retried.WithLabelValues(name)
	}
	return m
}
