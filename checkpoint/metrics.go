package checkpoint

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// What can be wrong with the disk while the store is open; the labels of one metric.
const (
	troubleSlow       = "slow"
	troubleBackground = "background"
	troubleCorruption = "corruption"
)

// metrics is also the collector of what is read off the store when asked.
type metrics struct {
	store   *Store
	sync    prometheus.Histogram
	gaps    *prometheus.CounterVec
	trouble *prometheus.CounterVec

	age, journal, openGaps, disk, room, paused *prometheus.Desc
	registered                                 []prometheus.Collector
}

func newMetrics(s *Store) *metrics {
	m := &metrics{
		store: s,
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "canal_outbox_checkpoint_sync_seconds",
			Help:    "Time of one write to the state directory, until it is synced to the disk.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
		}),
		gaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_gaps_total",
			Help: "Gaps recorded: parts of the log that were not read and that the sweep stood in for.",
		}, []string{"cause"}),
		trouble: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "canal_outbox_checkpoint_disk_trouble_total",
			Help: "Slow calls, failed background writes and damage found in the state directory.",
		}, []string{"kind"}),
		age: prometheus.NewDesc("canal_outbox_checkpoint_age_seconds",
			"Time since the checkpoint last moved; 0 before the first one.", nil, nil),
		journal: prometheus.NewDesc("canal_outbox_journal_entries",
			"Rows that the broker has taken and MySQL has not written.", nil, nil),
		openGaps: prometheus.NewDesc("canal_outbox_gaps_unacknowledged",
			"Recorded gaps that no operator has acknowledged.", nil, nil),
		disk: prometheus.NewDesc("canal_outbox_checkpoint_disk_bytes",
			"Size of the state store on the disk.", nil, nil),
		room: prometheus.NewDesc("canal_outbox_state_free_bytes",
			"Room on the file system of the state directory; NaN when the system does not say it.", nil, nil),
		paused: prometheus.NewDesc("canal_outbox_paused_seconds",
			"How long an operator has kept the intake stopped, and who; 0 while it is not.", []string{"by"}, nil),
	}
	for _, cause := range outbox.GapCauses() {
		m.gaps.WithLabelValues(string(cause))
	}
	for _, kind := range []string{troubleSlow, troubleBackground, troubleCorruption} {
		m.trouble.WithLabelValues(kind)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.age
	ch <- m.journal
	ch <- m.openGaps
	ch <- m.disk
	ch <- m.room
	ch <- m.paused
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	stats := m.store.Stats()
	age := 0.0
	if !stats.CheckpointAt.IsZero() {
		age = max(0, time.Since(stats.CheckpointAt).Seconds())
	}
	by, paused := "", 0.0
	if p := m.store.Pause(); p != nil {
		by, paused = p.By, max(1, time.Since(p.Since).Seconds()) // never 0, whatever the clock does
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(m.age, age)
	gauge(m.journal, float64(stats.JournalEntries))
	gauge(m.openGaps, float64(stats.UnacknowledgedGaps))
	gauge(m.disk, float64(stats.DiskBytes))
	free := math.NaN()
	if n, err := m.store.Free(); err == nil {
		free = float64(n)
	}
	gauge(m.room, free)
	gauge(m.paused, paused, by)
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{m, m.sync, m.gaps, m.trouble} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("checkpoint metrics: %w", err)
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

// unregister makes room for the next Store on the same registry.
func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.registered {
		reg.Unregister(c)
	}
}
