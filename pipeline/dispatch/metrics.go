package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// maxLabels bounds the topics that have series of their own; what comes after counts under "other".
const maxLabels = 200

type metrics struct {
	messages    *prometheus.CounterVec
	latency     prometheus.Histogram
	lateness    prometheus.Histogram
	lessDurable prometheus.Counter
	children    map[messageKey]prometheus.Counter // guarded by Dispatch.mu
	topics      map[string]bool
	tally       sink.Tally // for status; guarded by Dispatch.mu
}

type messageKey struct {
	table, topic string
	path         outbox.Path
	class        outbox.Class
}

func newMetrics(d *Dispatch, reg prometheus.Registerer) *metrics {
	m := &metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_messages_total",
			Help: "Results of publishing by table, topic (the first 200), path and outcome.",
		}, []string{"table", "topic", "path", "outcome"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "canal_outbox_publish_latency_seconds",
			Help:    "From the commit (from the arrival of the event where the log has whole seconds only) to the broker's acknowledgement, binlog path.",
			Buckets: sink.LatencyBounds[:],
		}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "canal_outbox_due_lateness_seconds",
			Help: "From the due time of a row (next_retry_time, by the database's clock) to the broker's acknowledgement: delayed rows and " +
				"retries, published by a timer or by the sweep.",
			Buckets: []float64{.005, .01, .02, .03, .05, .075, .1, .15, .2, .3, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600},
		}),
		lessDurable: prometheus.NewCounter(prometheus.CounterOpts{Name: "canal_outbox_less_durable_acknowledgements_total", Help: "Messages stored less durably than asked."}),
		children:    map[messageKey]prometheus.Counter{},
		topics:      map[string]bool{},
	}
	reg.MustRegister(m.messages, m.latency, m.lateness, m.lessDurable, suspendedTopics{d})
	gauge := func(name, help string, f func(State) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "canal_outbox_" + name, Help: help}, func() float64 { return f(d.State()) }))
	}
	gauge("in_flight_messages", "Messages at the sink.", func(s State) float64 { return float64(s.InFlight) })
	gauge("in_flight_bytes", "Their bytes.", func(s State) float64 { return float64(s.InFlightBytes) })
	gauge("retry_buffer_messages", "Messages that wait for a second send.", func(s State) float64 { return float64(s.RetryBuffer) })
	gauge("held_messages", "Messages of tables without a status that wait for their topic or for another attempt; the checkpoint waits for them.",
		func(s State) float64 { return float64(s.Held) })
	gauge("waiting_keys", "Keys that wait for an earlier row of theirs (tables[].ordering: key).", func(s State) float64 { return float64(s.WaitingKeys) })
	gauge("unwritten_rows", "Rows answered by the broker whose status MySQL has not written, without those that their table refuses (unwritable_rows).", func(s State) float64 { return float64(s.Unwritten) })
	gauge("breaker_state", "0 closed, 1 open, 2 half-open, 3 the lease is not held, so nothing is sent.", func(s State) float64 { return float64(s.breaker) })
	gauge("unanswered_seconds", "For how long the broker has answered no message although there are some to be answered; 0 when there are none.", func(s State) float64 {
		if s.UnansweredSince.IsZero() {
			return 0
		}
		return time.Since(s.UnansweredSince).Seconds()
	})
	return m
}

// suspendedTopics is the gauge of the topics that are left alone at present, by name; the first maxLabels of them.
type suspendedTopics struct{ d *Dispatch }

var suspendedDesc = prometheus.NewDesc("canal_outbox_suspended_topics", "Topics that are left alone because they are missing or forbidden: 1 each.", []string{"topic"}, nil)

// Describe implements prometheus.Collector.
func (suspendedTopics) Describe(out chan<- *prometheus.Desc) { out <- suspendedDesc }

// Collect implements prometheus.Collector.
func (c suspendedTopics) Collect(out chan<- prometheus.Metric) {
	topics := c.d.State().SuspendedTopics
	if len(topics) == 0 { // so that there is always a series
		out <- prometheus.MustNewConstMetric(suspendedDesc, prometheus.GaugeValue, 0, "")
	}
	for _, t := range topics[:min(len(topics), maxLabels)] {
		out <- prometheus.MustNewConstMetric(suspendedDesc, prometheus.GaugeValue, 1, t.Topic)
	}
}

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
	m.tally.Count(r, now)
	if r.LessDurable {
		m.lessDurable.Inc()
	}
	switch took := max(0, now.Sub(r.Message.Since).Seconds()); {
	case r.Class != outbox.ClassNone:
	case r.Message.Path == outbox.PathBinlog:
		m.latency.Observe(took)
	case !r.Message.DueAt.IsZero():
		m.lateness.Observe(took)
	}
}

// Tally counts the results since the start.
func (d *Dispatch) Tally() sink.Tally {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.metrics.tally
	t.Topics = maps.Clone(t.Topics)
	return t
}

// State is what status, health and metrics show. It is a record: one field for each value.
type State struct {
	InFlight        int
	InFlightBytes   int
	RetryBuffer     int
	Held            int       // rows of tables without a status that wait for their topic or for their next attempt, and the checkpoint with them
	HeldSince       time.Time // since when the first of them is in memory
	Unwritten       int
	Full            bool      // no row is taken before statuses are written
	Breaker         string    // closed, open, half-open, or LeaseNotHeld: nothing is sent, and the broker is not the cause
	Trouble         string    // why the breaker is not closed, or the last failure; "" when all is well
	UnansweredSince time.Time // since when the broker has answered no message although there are some; zero when there are none
	ResultSince     time.Time // since when the sink has reported nothing although the breaker is closed and it has messages; zero otherwise
	SuspendedTopics []SuspendedTopic
	WaitingKeys     int  // that wait for an earlier row (ordering: key)
	WaitingRows     int  // that are remembered of them
	TableClosed     bool // of a table not all of these rows are remembered, or known yet: only the sweep publishes its rows, some of them at a time

	breaker breakerState
}

// State returns the present state.
func (d *Dispatch) State() State {
	fenced := !d.May()
	d.mu.Lock()
	defer d.mu.Unlock()
	s := State{
		InFlight: d.atSink.Rows, InFlightBytes: d.atSink.Bytes, RetryBuffer: d.retry.Rows, Held: d.held.Rows, Unwritten: d.tracker.Unwritten().Rows + d.tracker.Left(),
		Full: !d.mayWait(d.tracker.Unwritten(), outbox.PathBinlog), Trouble: d.trouble, SuspendedTopics: d.topics.list(), breaker: d.breaker.state,
	}
	s.WaitingKeys, s.WaitingRows = d.order.Waiting()
	s.TableClosed = !d.order.Whole()
	// A breaker that opened because nothing may be sent stays open until the first answer after the lease is held again.
	if fenced || d.breaker.state != breakerClosed && strings.Contains(d.trouble, sink.ErrMayNot.Error()) {
		s.breaker, s.Trouble = leaseNotHeld, sink.ErrMayNot.Error()
	}
	s.Breaker = s.breaker.String()
	if s.Held > 0 {
		s.HeldSince = slices.MinFunc(d.held.rows, func(a, b *tracker.Entry) int { return cmp.Compare(a.Sends.Sequence, b.Sends.Sequence) }).Message.Since
	}
	if s.InFlight+s.RetryBuffer > 0 && s.breaker != leaseNotHeld { // else the broker was not asked
		s.UnansweredSince = d.unansweredSince
	}
	if s.InFlight > 0 && d.breaker.state == breakerClosed {
		s.ResultSince = d.quietSince
	}
	return s
}
