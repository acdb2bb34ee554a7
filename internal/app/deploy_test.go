package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/test/servers"
)

// metrics runs the process until it has published a row and returns what it exports.
func metrics(t *testing.T) string {
	t.Helper()
	cfg := source(t, testkit.SharedMySQL(t), "watched", relayGrants)
	dir, err := os.MkdirTemp("", "canal-outbox-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	cfg.Checkpoint.Dir, cfg.Admin.Listen = dir, ""
	testkit.Exec(t, testkit.SharedMySQL(t).Root(), "INSERT INTO "+cfg.Tables[0].Name+
		" (biz_type, biz_key, topic, message_body) VALUES ('o', '1', 't', 'x')")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, Options{Version: "test"}, zap.NewNop()) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	client := admin.NewClient(cfg.Checkpoint.Socket())
	testkit.WaitFor(t, time.Minute, "the row to be published and counted", func() bool {
		s, err := client.Status(ctx)
		return err == nil && s.Source.State == "connected" && s.Throughput.Published > 0 && len(s.Tables) > 0
	})
	return scrape(t, cfg)
}

// sinkMetrics is what the sinks export that metrics does without.
func sinkMetrics(t *testing.T) string {
	t.Helper()
	reg := prometheus.NewRegistry()
	cfg := &config.Config{Sink: config.Use("kafka", &kafka.Section{Brokers: []string{"127.0.0.1:1"}, Compression: "none"})}
	s, err := newSink(cfg, nil, zap.NewNop(), reg)
	testkit.Must(t, err)
	defer func() { testkit.Must(t, s.Close(t.Context())) }()
	families, err := reg.Gather()
	testkit.Must(t, err)
	var text strings.Builder
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&text, f)
		testkit.Must(t, err)
	}
	return text.String()
}

func scrape(t *testing.T, cfg *config.Config) string {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", cfg.Checkpoint.Socket())
	}
	c := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	response, err := c.Get("http://localhost/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	metricName = regexp.MustCompile(`\bcanal_outbox_[a-z0-9_]+`)
	labelUse   = regexp.MustCompile(`\b(canal_outbox_[a-z0-9_]+)\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
)

// Whatever the dashboard and the alert rules ask for must be there from the start, with the labels they use.
func TestDashboardAndAlertsAskForMetricsThatExist(t *testing.T) {
	exported := metrics(t) + sinkMetrics(t)
	series := map[string]string{}
	for _, line := range strings.Split(exported, "\n") {
		if name := metricName.FindString(line); name != "" && !strings.HasPrefix(line, "#") {
			series[name] += line + "\n"
		}
	}
	asked := 0
	for _, root := range []string{"../../deploy/grafana", "../../deploy/prometheus"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, name := range metricName.FindAllString(string(data), -1) {
				asked++
				if series[name] == "" {
					t.Errorf("%s asks for %s, which is not exported", path, name)
				}
			}
			for _, use := range labelUse.FindAllStringSubmatch(strings.ReplaceAll(string(data), `\"`, `"`), -1) {
				for _, label := range labelName.FindAllStringSubmatch(use[2], -1) {
					if !strings.Contains(series[use[1]], label[1]+`="`) && label[1] != "instance" && label[1] != "job" {
						t.Errorf("%s: %s has no label %s", path, use[1], label[1])
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if asked < 30 {
		t.Errorf("only %d uses were found", asked)
	}
}

func TestDashboardsAreComplete(t *testing.T) {
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { complete(t, file) })
	}
}

func complete(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID    string
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range dashboard.Panels {
		place := fmt.Sprint(p.GridPos.X, p.GridPos.Y)
		if seen[place] || seen[fmt.Sprint("id", p.ID)] || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q is in the way of another, empty or too wide", p.ID, p.Title)
		}
		seen[place], seen[fmt.Sprint("id", p.ID)] = true, true
	}
	if dashboard.UID == "" || len(dashboard.Panels) < 8 {
		t.Errorf("%d panels", len(dashboard.Panels))
	}
}

// The rules fire when they should.
func TestAlertsFire(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		testkit.Must(t, servers.Install(t.Context(), "promtool"))
		cache, err := servers.Cache()
		testkit.Must(t, err)
		promtool = filepath.Join(cache, "promtool")
	}
	out, err := exec.Command(promtool, "test", "rules", "../../deploy/prometheus/alerts_test.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
