package canal

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// wrongSetting is a setting of the server that the relay depends on.
type wrongSetting struct{ name, text string }

// setWrong stores the wrong settings, and returns those that are new.
func (g *gauge) setWrong(wrong []wrongSetting) (added []wrongSetting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range wrong {
		if !slices.Contains(g.wrong, w) {
			added = append(added, w)
		}
	}
	g.wrong, g.seen = wrong, true
	return added
}

// looked reports whether the settings were checked.
func (g *gauge) looked() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen
}

// settingsInfo has a series for each wrong setting, and one without a name when there is none.
type settingsInfo struct {
	gauge *gauge
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (s *settingsInfo) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

// Collect implements prometheus.Collector.
func (s *settingsInfo) Collect(ch chan<- prometheus.Metric) {
	s.gauge.mu.Lock()
	wrong := s.gauge.wrong
	s.gauge.mu.Unlock()
	if len(wrong) == 0 {
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, 0, "")
	}
	names := map[string]bool{}
	for _, w := range wrong {
		if !names[w.name] {
			names[w.name] = true
			ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, 1, w.name)
		}
	}
}
