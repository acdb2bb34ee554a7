package canal

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// State is a view of the reader for status pages.
type State struct {
	Connected bool
	Position  outbox.Position // after the last transaction or heartbeat; with the GTID set if there is one
	LastEvent time.Time       // by our clock, when the last bytes came from the server; zero: never
	Lag       time.Duration   // how far the reader is behind the last commit of the server, as far as known
	Stuck     *Stuck          // the event at which the reader is stuck; nil when it is not. Connected is false until the reader is past it
	Error     string          // why the last stream ended; "" while connected
	Settings  []string        // wrong settings of the server since the start, each with its effect and what to do
	Warning   string          // a problem while the log is read, and what to do; "" when there is none
}

// gauge keeps State and the metrics. The stream updates it at transaction ends and heartbeats only.
type gauge struct {
	transactions prometheus.Counter
	rows         *prometheus.CounterVec
	reconnects   *prometheus.CounterVec

	now       func() time.Time
	heartbeat time.Duration
	begun     time.Time // the silence counts from here until the first event

	mu      sync.Mutex
	state   State
	offset  time.Duration // the database's clock minus ours
	lag     time.Duration // the last known lag
	lagAt   time.Time     // the time of lag; zero: never
	behind  bool          // since then the stream has shown neither a transaction nor the end of the log
	waiting bool          // the reader waits for the handler
	wrong   []wrongSetting
	seen    bool            // the settings were checked
	set     *outbox.GTIDSet // a copy of the reader's; nil: unknown
}

func newGauge(reg prometheus.Registerer, tables []*table.Table, heartbeat time.Duration) *gauge {
	g := &gauge{now: time.Now, heartbeat: heartbeat, begun: time.Now()}
	const prefix = "canal_outbox_"
	g.transactions = prometheus.NewCounter(prometheus.CounterOpts{
		Name: prefix + "binlog_transactions_total", Help: "Transactions read from the binlog, including those of other tables.",
	})
	g.rows = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "binlog_rows_total", Help: "Rows read from the binlog and offered for publishing.",
	}, []string{"table"})
	for _, t := range tables {
		g.rows.WithLabelValues(t.Name())
	}
	g.reconnects = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "reconnects_total", Help: "Ends of a binlog stream and failed attempts to open one, by reason.",
	}, []string{"class"})
	for _, c := range classes() {
		g.reconnects.WithLabelValues(string(c))
	}
	reg.MustRegister(g.transactions, g.rows, g.reconnects,
		gaugeFunc(prefix+"binlog_lag_seconds", "Seconds by which the reader is behind the last commit on the server.", func() float64 {
			return g.snapshot().Lag.Seconds()
		}),
		gaugeFunc(prefix+"binlog_last_event_age_seconds", "Seconds since anything came from the server, heartbeats included.", func() float64 {
			if last := g.snapshot().LastEvent; !last.IsZero() {
				return g.now().Sub(last).Seconds()
			}
			return g.now().Sub(g.begun).Seconds()
		}),
		gaugeFunc(prefix+"reader_connected", "1 while a binlog stream is open.", func() float64 {
			if g.snapshot().Connected {
				return 1
			}
			return 0
		}),
		gaugeFunc(prefix+"reader_stuck_seconds", "Seconds for which the reader is stuck at one event of the binlog; 0 when it is not stuck.", func() float64 {
			if stuck := g.snapshot().Stuck; stuck != nil {
				return max(1e-3, g.now().Sub(stuck.Since).Seconds())
			}
			return 0
		}),
		&settingsInfo{gauge: g, desc: prometheus.NewDesc(prefix+"source_settings", "Settings of the server that are wrong since the start, by name: 1 each.",
			[]string{"setting"}, nil)},
		&positionInfo{gauge: g, desc: prometheus.NewDesc(prefix+"position_info", "The binlog file being read; the value is 1. "+
			"Offset and GTID set are in status: as labels they would make a new series with every transaction.", []string{"file"}, nil)},
	)
	return g
}

func gaugeFunc(name, help string, f func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
}

// positionInfo has labels that change, and shows only the current ones.
type positionInfo struct {
	gauge *gauge
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (p *positionInfo) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc }

// Collect implements prometheus.Collector.
func (p *positionInfo) Collect(ch chan<- prometheus.Metric) {
	at := p.gauge.snapshot().Position
	ch <- prometheus.MustNewConstMetric(p.desc, prometheus.GaugeValue, 1, at.File)
}

// snapshot returns the current lag: zero when the log was read to its end; otherwise the lag at the last transaction, growing
// while the reader is blocked or disconnected, and while the server skips what the reader has. A transaction's age is not lag
// once the reader waits for the next one.
func (g *gauge) snapshot() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.state
	s.Lag = g.lag
	silence := g.now().Sub(g.begun)
	if !s.LastEvent.IsZero() {
		silence = g.now().Sub(s.LastEvent)
	}
	if !s.Connected || g.waiting || g.behind || silence > 2*g.heartbeat {
		known := g.lagAt
		if known.IsZero() {
			known = g.begun
		}
		s.Lag += g.now().Sub(known)
	}
	for _, w := range g.wrong {
		s.Settings = append(s.Settings, w.text)
	}
	if s.Stuck != nil {
		s.Connected, s.Error = false, s.Stuck.String()
	}
	if g.set != nil {
		s.Position.GTIDs = g.set.String()
	}
	return s
}

func (g *gauge) connected(from outbox.Position, set *outbox.GTIDSet, offset time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = State{Connected: true, Position: from, LastEvent: g.now(), Stuck: g.state.Stuck}
	g.offset, g.set, g.behind = offset, nil, true
	if set != nil {
		g.set = set.Clone()
	}
}

// compared stores the database's clock after a comparison.
func (g *gauge) compared(offset time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offset = offset
}

func (g *gauge) disconnected(c class, err error) {
	g.reconnects.WithLabelValues(string(c)).Inc()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Connected, g.waiting, g.state.Error, g.state.Warning = false, false, err.Error(), ""
}

// warn sets the warning and reports whether it changed.
func (g *gauge) warn(text string) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	changed = g.state.Warning != text
	g.state.Warning = text
	return changed
}

// stopped records that reading has ended.
func (g *gauge) stopped() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Connected, g.waiting, g.state.Warning = false, false, ""
}

// fine reports whether a time of the log is exact to the microsecond: true on MySQL; MariaDB has seconds.
func fine(t time.Time) bool { return t.Nanosecond() != 0 }

// offering records that a transaction was read and is offered. It returns its commit time by our clock; zero when the log has
// none.
func (g *gauge) offering(txn *outbox.Txn) (committed time.Time) {
	now := g.now()
	g.transactions.Inc()
	for rows := txn.Messages; len(rows) > 0; {
		n := 1
		for n < len(rows) && rows[n].Table == rows[0].Table {
			n++
		}
		g.rows.WithLabelValues(rows[0].Table).Add(float64(n))
		rows = rows[n:]
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting, g.behind, g.state.LastEvent, g.lagAt = true, false, now, now
	if txn.CommittedAt.IsZero() {
		return time.Time{}
	}
	committed = txn.CommittedAt.Add(-g.offset)
	g.lag = now.Sub(committed)
	if !fine(txn.CommittedAt) { // the commit may have been up to a second later
		g.lag -= time.Second
	}
	g.lag = max(0, g.lag)
	return committed
}

// offered records that the transaction was accepted.
func (g *gauge) offered(end outbox.Position, id outbox.GTID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting, g.state.Stuck = false, nil
	g.state.Position.File, g.state.Position.Offset = end.File, end.Offset
	if g.set != nil {
		g.set.Add(id)
	}
}

func (g *gauge) idle(pos outbox.Position) {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lag, g.lagAt, g.behind, g.state.LastEvent, g.state.Stuck = 0, now, false, now, nil
	if pos.File != "" {
		g.state.Position.File, g.state.Position.Offset = pos.File, pos.Offset
	}
}

// skipping records that the server skips transactions before the end of its log.
func (g *gauge) skipping() {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.behind, g.state.LastEvent = true, now
}

// setStuck records where the reader is stuck; nil when it is not.
func (g *gauge) setStuck(s *Stuck) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Stuck = s
}

// alive records any other event from the server.
func (g *gauge) alive() {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.LastEvent = now
}
