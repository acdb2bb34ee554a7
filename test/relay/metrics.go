package relay

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Metrics is one reading of the metrics of a process. Names are without the prefix canal_outbox_.
type Metrics map[string]*dto.MetricFamily

// Metrics reads the metrics of the running process.
func (r *Relay) Metrics(t testing.TB) Metrics {
	t.Helper()
	m, err := ReadMetrics(r.StateDir())
	testkit.Must(t, err)
	return m
}

// ReadMetrics reads the metrics of the process that has the state directory open, over its socket.
func ReadMetrics(stateDir string) (Metrics, error) {
	response, err := Socket(stateDir).Get("http://relay/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	m := Metrics{}
	for name, family := range families {
		m[strings.TrimPrefix(name, "canal_outbox_")] = family
	}
	return m, err
}

// Socket returns a client whose requests, to any host, go to the socket of that process.
func Socket(stateDir string) *http.Client {
	return &http.Client{Timeout: startDeadline, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(stateDir, "admin.sock"))
		},
	}}
}

// Sum adds up the gauges and counters of a name that have all the labels, each as `name="value"`; 0 when there are none.
func (m Metrics) Sum(name string, labels ...string) (sum float64) {
series:
	for _, one := range m[name].GetMetric() {
		var have strings.Builder
		for _, pair := range one.GetLabel() {
			fmt.Fprintf(&have, "%s=%q ", pair.GetName(), pair.GetValue())
		}
		for _, label := range labels {
			if !strings.Contains(have.String(), label) {
				continue series
			}
		}
		sum += one.GetGauge().GetValue() + one.GetCounter().GetValue()
	}
	return sum
}

// Sums is Sum of every name.
func (m Metrics) Sums() map[string]float64 {
	sums := map[string]float64{}
	for name := range m {
		sums[name] = m.Sum(name)
	}
	return sums
}

// By adds a counter up for each value of one of its labels, of which there is at least one.
func (m Metrics) By(t testing.TB, name, label string) map[string]float64 {
	t.Helper()
	sums := map[string]float64{}
	for _, one := range m[name].GetMetric() {
		for _, pair := range one.GetLabel() {
			if pair.GetName() == label {
				sums[pair.GetValue()] += one.GetCounter().GetValue()
			}
		}
	}
	if len(sums) == 0 {
		t.Fatalf("there is no metric %s with a label %s", name, label)
	}
	return sums
}

// Only returns the only series of a name, such as a histogram.
func (m Metrics) Only(t testing.TB, name string) *dto.Metric {
	t.Helper()
	list := m[name].GetMetric()
	if len(list) != 1 {
		t.Fatalf("%d metrics are named %s, want one", len(list), name)
	}
	return list[0]
}
