package tracker

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/canal-outbox/canal-outbox/outbox"
)

type metrics struct {
	deferred map[outbox.Cause]prometheus.Counter
	left     atomic.Uint64 // all of deferred
	bugs     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		deferred: map[outbox.Cause]prometheus.Counter{},
		bugs:     f.NewCounter(prometheus.CounterOpts{Name: "canal_outbox_internal_errors_total", Help: "Broken bookkeeping: anything but 0 is a bug."}),
	}
	deferred := f.NewCounterVec(prometheus.CounterOpts{
		Name: "canal_outbox_deferred_total", Help: "Rows that the log has shown and that the binlog path left to the sweep, by cause.",
	}, []string{"cause"})
	for _, c := range outbox.Causes() {
		m.deferred[c] = deferred.WithLabelValues(string(c))
	}
	return m
}
