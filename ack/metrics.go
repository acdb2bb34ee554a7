package ack

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/canal-outbox/canal-outbox/outbox"
)

type metrics struct {
	batchSize     prometheus.Histogram
	commitSeconds prometheus.Histogram
	settleSeconds prometheus.Histogram
	retries       prometheus.Counter
	failures      *prometheus.CounterVec
	writeErrors   prometheus.Counter
	unwritable    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, pending, locked, refused func() int) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		batchSize: f.NewHistogram(prometheus.HistogramOpts{
			Name: "canal_outbox_ack_batch_size", Help: "Rows in one batch of status updates.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500},
		}),
		commitSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "canal_outbox_journal_commit_seconds", Help: "Time of one synced commit of the journal.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 14),
		}),
		settleSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "canal_outbox_settle_latency_seconds",
			Help:    "From the commit of a row (swept rows: from reading it) until the table shows it as sent.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}),
		retries: f.NewCounter(prometheus.CounterOpts{
			Name: "canal_outbox_retries_total", Help: "Refused messages that were scheduled for another attempt.",
		}),
		failures: f.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_failed_total", Help: "Messages that ended as FAILED, by the class of the last refusal.",
		}, []string{"reason"}),
		writeErrors: f.NewCounter(prometheus.CounterOpts{
			Name: "canal_outbox_ack_errors_total", Help: "Attempts to write a batch of statuses that failed as a whole.",
		}),
		unwritable: f.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_unwritable_total", Help: "Completions that the table refused for the row's data.",
		}, []string{"action"}),
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "canal_outbox_unwritable_rows",
		Help: "Published messages that the table does not show as sent because it refuses the update; kept in the journal.",
	}, func() float64 { return float64(refused()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "canal_outbox_ack_pending", Help: "Completions that the table has not written yet.",
	}, func() float64 { return float64(pending()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "canal_outbox_ack_locked", Help: "Of these, completions of rows whose lock another session held at the last attempt.",
	}, func() float64 { return float64(locked()) })
	for c := outbox.ClassPermanent; c <= outbox.ClassUnknown; c++ {
		m.failures.WithLabelValues(c.String())
	}
	for v := outbox.ActionMarkSent; v <= outbox.ActionRelease; v++ {
		m.unwritable.WithLabelValues(v.String())
	}
	return m
}

// failed is the counter of one class; a completion without one counts as refused, like any answer that is not listed.
func (m *metrics) failed(c outbox.Class) prometheus.Counter {
	if c == outbox.ClassNone {
		c = outbox.ClassRefused
	}
	return m.failures.WithLabelValues(c.String())
}
