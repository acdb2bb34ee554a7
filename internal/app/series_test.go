package app

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/pipeline/readback"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq"
)

// byNature have labels whose values come with the first message, or with the first answer of a broker.
var byNature = []string{"canal_outbox_messages_total", "canal_outbox_rocketmq_broker_up"}

// unlabelled are the names of the registered metrics that have no series.
func unlabelled(t *testing.T, reg *prometheus.Registry) (missing []string, seen int) {
	t.Helper()
	families, err := reg.Gather()
	testkit.Must(t, err)
	has := func(name string) bool {
		return slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name && len(f.Metric) > 0 })
	}
	all := make(chan *prometheus.Desc)
	go func() {
		reg.Describe(all)
		close(all)
	}()
	for desc := range all {
		_, rest, _ := strings.Cut(desc.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		if !strings.HasPrefix(name, "canal_outbox_") {
			continue
		}
		if seen++; !has(name) && !slices.Contains(byNature, name) {
			missing = append(missing, name)
		}
	}
	return missing, seen
}

// A relay that has nothing configured and has done nothing shows every metric that it has: a query or an alert never meets a name that
// comes only with the first event.
func TestEverySeriesIsThereFromTheStart(t *testing.T) {
	cfg := source(t, testkit.SharedMySQL(t), "starter", relayGrants)
	dir, err := os.MkdirTemp("", "canal-outbox-")
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, os.RemoveAll(dir)) })
	cfg.Checkpoint.Dir, cfg.Admin.Listen = dir, ""
	d := newInstance(newProcess(cfg, Options{Version: "test"}, zap.NewNop()))
	testkit.Must(t, d.open(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.relay.Run(ctx) }()
	var sampling sync.WaitGroup
	sampling.Go(func() { d.samples.Run(ctx) })
	testkit.WaitFor(t, time.Minute, "the relay to read and to count", func() bool {
		return d.relay.Ready() && d.reader.State().Connected && len(d.samples.Tables(time.Now())) > 0
	})
	missing, seen := unlabelled(t, d.registry)
	promised := described(d.registry)
	cancel()
	testkit.Must(t, <-ended)
	sampling.Wait()
	testkit.Must(t, d.close())
	if len(missing) > 0 || seen < 60 {
		t.Errorf("of %d metrics these have no series: %s", seen, strings.Join(missing, ", "))
	}
	for name, section := range map[string]config.Section{
		"kafka":    &kafka.Section{Brokers: []string{"127.0.0.1:1"}, Compression: "none"},
		"rocketmq": &rocketmq.Section{NameServers: []string{"127.0.0.1:1"}},
	} {
		reg := prometheus.NewRegistry()
		s, err := newSink(&config.Config{Sink: config.Use(name, section)}, nil, zap.NewNop(), reg)
		testkit.Must(t, err)
		promised = append(promised, described(reg)...)
		if missing, _ := unlabelled(t, reg); len(missing) > 0 {
			t.Errorf("%s: these have no series: %s", name, strings.Join(missing, ", "))
		}
		testkit.Must(t, s.Close(t.Context()))
	}
	reg := prometheus.NewRegistry()
	readback.New(readback.Config{}, nil, zap.NewNop(), reg)
	testkit.Contract(t, "metrics", append(promised, described(reg)...))
}

var description = regexp.MustCompile(`fqName: "(canal_outbox_[a-z0-9_]+)".*variableLabels: \{([^}]*)\}`)

// described are the names of the registered metrics with their labels.
func described(reg *prometheus.Registry) (lines []string) {
	all := make(chan *prometheus.Desc)
	go func() {
		reg.Describe(all)
		close(all)
	}()
	for desc := range all {
		if parts := description.FindStringSubmatch(desc.String()); parts != nil {
			lines = append(lines, strings.TrimSuffix(parts[1]+"{"+parts[2]+"}", "{}"))
		}
	}
	return lines
}
