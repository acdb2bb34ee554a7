package tracker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/canal-outbox/canal-outbox/outbox"
)

func newMetrics(reg prometheus.Registerer) (bugs prometheus.Counter, deferred map[outbox.Cause]prometheus.Counter) {
	f := promauto.With(reg)
	bugs = f.NewCounter(prometheus.CounterOpts{Name: "canal_outbox_internal_errors_total", Help: "Broken bookkeeping: anything but 0 is a bug."})
	byCause := f.NewCounterVec(prometheus.CounterOpts{
		Name: "canal_outbox_deferred_total", Help: "Rows that the log has shown and that the binlog path left to the sweep, by cause.",
	}, []string{"cause"})
	deferred = map[outbox.Cause]prometheus.Counter{}
	for _, c := range outbox.Causes() {
		deferred[c] = byCause.WithLabelValues(string(c))
	}
	return bugs, deferred
}
