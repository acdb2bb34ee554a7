package redelivery

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	retried *prometheus.CounterVec
	errors  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, cfg Config) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		retried: f.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_failed_retried_total", Help: "FAILED rows that were set back to PENDING because retry.failed_every says so.",
		}, []string{"table"}),
		errors: f.NewCounter(prometheus.CounterOpts{
			Name: "canal_outbox_redelivery_errors_total", Help: "Looks at rows that may have to go out again that ended with an error of the database.",
		}),
	}
	for name := range cfg.Failed {
		m.retried.WithLabelValues(name)
	}
	return m
}
