package lease

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Mode is the mode of this process.
type Mode string

const (
	Active  Mode = "active"  // it holds the lease and publishes
	Lapsed  Mode = "lapsed"  // it holds the lease, could not renew it in time, and sends nothing
	Standby Mode = "standby" // another process is active, or may be
	Solo    Mode = "alone"   // it publishes without a lease, because the table or a privilege for it is missing
	Off     Mode = "off"     // it publishes without a lease, because the configuration says so
)

var modes = []Mode{Active, Lapsed, Standby, Solo, Off}

// State is for people.
type State struct {
	Mode   Mode
	Since  time.Time     // when the mode began
	Holder string        // of a standby: the Host of the active process; "" when it is not known
	Paused *outbox.Pause // of a standby: the pause of the active process; nil when there is none, or it is not known
	Why    string        // of a standby: why it does not take the lease; "" when that is not known
	Term   uint64        // of the lease that this process holds or waits for; 0 when there is none
	Left   time.Duration // how long it may publish without another renewal
	Error  string        // why the last statement failed; "" when it did not
}

// State returns the current state of this process.
func (l *Lease) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state
	if s.Mode != Active && s.Mode != Lapsed || l.grant == nil {
		return s
	}
	if s.Left = l.grant.left(); s.Left == 0 && s.Mode == Active { // before the failed renewal that will say so
		s.Mode = Lapsed
	}
	return s
}

// metrics are counted over all acquisitions of the process.
type metrics struct {
	acquired, lost, missed prometheus.Counter
	all                    []prometheus.Collector
}

func newMetrics(l *Lease) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "canal_outbox_lease_" + name, Help: help})
	}
	m := &metrics{
		acquired: counter("acquired_total", "Times this process became the active one."),
		lost:     counter("lost_total", "Times another process took the lease over from this one, which had not released it."),
		missed:   counter("renewals_failed_total", "Renewals of the lease that the database did not confirm."),
	}
	gauge := func(opts prometheus.GaugeOpts, value func(State) float64) prometheus.Collector {
		opts.Name = "canal_outbox_lease_" + opts.Name
		return prometheus.NewGaugeFunc(opts, func() float64 { return value(l.State()) })
	}
	m.all = []prometheus.Collector{
		m.acquired, m.lost, m.missed,
		gauge(prometheus.GaugeOpts{Name: "term", Help: "Number of the acquisition that this process holds or waits for; 0 without one."},
			func(s State) float64 { return float64(s.Term) }),
		gauge(prometheus.GaugeOpts{Name: "valid_seconds", Help: "Seconds for which this process may publish without another renewal."},
			func(s State) float64 { return s.Left.Seconds() }),
	}
	for _, mode := range modes {
		m.all = append(m.all, gauge(prometheus.GaugeOpts{
			Name: "state", Help: "1 for the mode of this process: active, lapsed (it could not renew and sends nothing), standby, alone or off (no lease).",
			ConstLabels: prometheus.Labels{"state": string(mode)},
		}, func(s State) float64 {
			if s.Mode == mode {
				return 1
			}
			return 0
		}))
	}
	return m
}

// Register adds the metrics to a registry. A process may have one registry after the other; the counters continue.
func (l *Lease) Register(reg prometheus.Registerer) { reg.MustRegister(l.metrics.all...) }
