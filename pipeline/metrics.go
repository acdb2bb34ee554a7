package pipeline

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// maxLabels bounds the topics that have series of their own; what comes after counts under "other".
const maxLabels = 200

type metrics struct {
	messages *prometheus.CounterVec
	latency  prometheus.Histogram
	let      map[outbox.Cause]prometheus.Counter
	weak     prometheus.Counter
	bugs     prometheus.Counter
	children map[messageKey]prometheus.Counter // guarded by Pipeline.mu
	topics   map[string]bool
}

type messageKey struct {
	table, topic string
	path         outbox.Path
	class        outbox.Class
}

func newMetrics(p *Pipeline, reg prometheus.Registerer) *metrics {
	m := &metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_messages_total",
			Help: "Results of publishing by table, topic (the first 200), path and outcome.",
		}, []string{"table", "topic", "path", "outcome"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "canal_outbox_publish_latency_seconds",
			Help:    "From the commit (from the arrival of the event where the log has whole seconds only) to the broker's acknowledgement, binlog path.",
			Buckets: []float64{.0002, .0005, .001, .0015, .002, .003, .005, .0075, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		weak:     prometheus.NewCounter(prometheus.CounterOpts{Name: "canal_outbox_weak_acknowledgements_total", Help: "Messages stored less durably than asked."}),
		bugs:     prometheus.NewCounter(prometheus.CounterOpts{Name: "canal_outbox_internal_errors_total", Help: "Broken bookkeeping: anything but 0 is a bug."}),
		let:      map[outbox.Cause]prometheus.Counter{},
		children: map[messageKey]prometheus.Counter{},
		topics:   map[string]bool{},
	}
	let := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "canal_outbox_deferred_total",
		Help: "Rows that the binlog path left to the sweep, by cause. The cause missed is counted by the sweep: rows without a due " +
			"time that the log never showed as inserted (REPLACE or upsert of an existing key, sql_log_bin=0, a status set by " +
			"hand). It is too low where something else could explain a row as well: after a start, a deferred or refused row or a " +
			"gap, until a sweep over rows of any age and some minutes have passed, and while topics are suspended.",
	}, []string{"cause"})
	for _, c := range outbox.Causes() {
		m.let[c] = let.WithLabelValues(string(c))
	}
	reg.MustRegister(m.messages, m.latency, m.weak, m.bugs, let)
	gauge := func(name, help string, f func(Snapshot) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "canal_outbox_" + name, Help: help}, func() float64 { return f(p.Snapshot()) }))
	}
	gauge("in_flight_messages", "Messages in the sink's hands.", func(s Snapshot) float64 { return float64(s.InFlight) })
	gauge("in_flight_bytes", "Their bytes.", func(s Snapshot) float64 { return float64(s.InFlightBytes) })
	gauge("held_messages", "Messages that wait for a second send.", func(s Snapshot) float64 { return float64(s.Held) })
	gauge("unwritten_rows", "Rows answered by the broker whose status MySQL has not written.", func(s Snapshot) float64 { return float64(s.Unwritten) })
	gauge("breaker_state", "0 closed, 1 open, 2 half-open.", func(s Snapshot) float64 { return float64(s.state) })
	gauge("suspended_topics", "Topics that are left alone because they are missing or forbidden.", func(s Snapshot) float64 { return float64(len(s.SuspendedTopics)) })
	return m
}

func (m *metrics) deferred(cause outbox.Cause, rows int) { m.let[cause].Add(float64(rows)) }

func (m *metrics) outcome(r *sink.Result, now time.Time) {
	key := messageKey{r.Message.Table, r.Message.Topic, r.Message.Path, r.Class}
	c := m.children[key]
	if c == nil {
		if !m.topics[key.topic] && len(m.topics) >= maxLabels {
			key.topic = "other"
		}
		m.topics[key.topic] = true
		c = m.messages.WithLabelValues(key.table, key.topic, key.path.String(), key.class.String())
		m.children[key] = c
	}
	c.Inc()
	if r.Weak {
		m.weak.Inc()
	}
	if r.Class == outbox.ClassNone && r.Message.Path == outbox.PathBinlog {
		m.latency.Observe(max(0, now.Sub(r.Message.Since).Seconds()))
	}
}

// Snapshot is the pipeline's state for status, health and metrics.
type Snapshot struct {
	InFlight        int
	InFlightBytes   int
	Held            int
	Unwritten       int
	Owned           int
	Offered         outbox.Position
	Settled         outbox.Position // GTIDs is not filled in
	Breaker         string
	Trouble         string   // why the breaker is not closed, or the last failure; "" when all is well
	SuspendedTopics []string // "topic: reason", sorted

	state breakerState
}

// Snapshot returns the state at this moment.
func (p *Pipeline) Snapshot() Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Snapshot{
		InFlight: p.inFlight, InFlightBytes: p.inFlightB, Held: len(p.heldBack), Unwritten: p.unwritten,
		Owned: len(p.registry), Offered: p.offered, Settled: p.mark.low, Breaker: p.breaker.state.String(), Trouble: p.trouble, state: p.breaker.state,
	}
	for topic, t := range p.suspended {
		s.SuspendedTopics = append(s.SuspendedTopics, topic+": "+t.reason)
	}
	slices.Sort(s.SuspendedTopics)
	return s
}
