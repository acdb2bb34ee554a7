package kafka

import (
	"errors"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// metrics are the sink's own series. Hooks of the client library feed those that only the library can count.
type metrics struct {
	connectErrors prometheus.Counter
	throttled     prometheus.Counter
	dataLoss      prometheus.Counter
	sentAlone     prometheus.Counter
	transactions  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "canal_outbox", Subsystem: "kafka", Name: name, Help: help})
	}
	m := &metrics{
		connectErrors: counter("connect_errors_total", "Connections to Kafka brokers that could not be opened."),
		throttled:     counter("throttled_seconds_total", "Time for which brokers asked this client to pause (quotas)."),
		dataLoss:      counter("data_loss_total", "Times a partition was found to have lost acknowledged messages."),
		sentAlone:     counter("sent_alone_total", "Messages sent again one by one after their batch was refused."),
		transactions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "canal_outbox", Subsystem: "kafka", Name: "transactions_total", Help: "Transactions that were ended (sink.kafka.exactly_once).",
		}, []string{"result"}),
	}
	for _, result := range []string{"committed", "aborted"} {
		m.transactions.WithLabelValues(result)
	}
	for _, c := range []prometheus.Collector{m.connectErrors, m.throttled, m.dataLoss, m.sentAlone, m.transactions} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

var (
	_ kgo.HookBrokerConnect  = (*metrics)(nil)
	_ kgo.HookBrokerThrottle = (*metrics)(nil)
)

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (m *metrics) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil && !errors.Is(err, kgo.ErrClientClosed) {
		m.connectErrors.Inc()
	}
}

// OnBrokerThrottle implements kgo.HookBrokerThrottle.
func (m *metrics) OnBrokerThrottle(_ kgo.BrokerMetadata, pause time.Duration, _ bool) {
	m.throttled.Add(pause.Seconds())
}
