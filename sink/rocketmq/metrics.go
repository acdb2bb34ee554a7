package rocketmq

import (
	"fmt"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests  *prometheus.CounterVec
	batch     prometheus.Histogram
	sentAlone prometheus.Counter
	changes   prometheus.Counter
	up        *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_rocketmq_requests_total",
			Help: "Send requests to RocketMQ brokers by the outcome of their messages.",
		}, []string{"outcome"}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "canal_outbox_rocketmq_batch_messages",
			Help:    "Messages in one send request.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 6),
		}),
		sentAlone: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "canal_outbox_rocketmq_sent_alone_total",
			Help: "Messages sent again one by one after a request with them got no answer while its broker answered others.",
		}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "canal_outbox_rocketmq_queue_changes_total",
			Help: "Changes of a topic's list of write queues; each may break the order of keys once.",
		}),
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "canal_outbox_rocketmq_broker_up",
			Help: "1 while the broker answers, 0 while it is away and gets no messages.",
		}, []string{"broker"}),
	}
	for class := outbox.ClassNone; class <= outbox.ClassUnknown; class++ {
		m.requests.WithLabelValues(class.String())
	}
	for _, c := range []prometheus.Collector{m.requests, m.batch, m.sentAlone, m.changes, m.up} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("rocketmq: metrics: %w", err)
		}
	}
	return m, nil
}
