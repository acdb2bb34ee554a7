package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// A05: while a start waits for the database the process answers an orchestrator and an operator: alive, ready, and in status what it waits for.
func TestA05_AnswersWhileItWaits(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*testkit.Proxy, bool) error{
		"refused": (*testkit.Proxy).Refuse,
		"silent":  func(p *testkit.Proxy, on bool) error { p.Hole(on); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, testkit.SharedMySQL(t))
			proxy := l.through()
			listen := testkit.FreeAddress(t)
			r := relay.New(t, relay.Options{
				Source: l.source, Extra: fmt.Sprintf("admin: {listen: %q}", listen),
				Sink:   fmt.Sprintf("kafka: {brokers: [%q]}", l.kafka.ListenAddrs()[0]),
				Tables: []*relay.Table{{DB: l.sql, Schema: l.schema, Preset: "t_local_message"}},
			})
			r.Start(t)
			r.Stop(t)
			proxy.Cut()
			testkit.Must(t, away(proxy, true))
			r.Launch(t)
			l.wait("an answer", func() bool { code, _ := get(t, listen, "/healthz"); return code == http.StatusOK })
			if code, body := get(t, listen, "/readyz"); code != http.StatusOK {
				t.Errorf("readyz: %d %s", code, body)
			}
			if _, body := get(t, listen, "/metrics"); !strings.Contains(body, "canal_outbox_reader_connected 0") || !strings.Contains(body, "canal_outbox_build_info") {
				t.Errorf("metrics:\n%s", body)
			}
			s, err := r.Status()
			if err != nil || s.State != "degraded" || len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0], "waiting for the database: ") || s.Source.State != "waiting" {
				t.Errorf("status: %+v, %v", s, err)
			}
			if out, _, code := r.Command(t, "checkpoint", "show"); code != 0 || !strings.Contains(out, "binlog.") {
				t.Errorf("checkpoint show: code %d, %s", code, out)
			}
			if _, errOut, code := r.Command(t, "sweep"); code == 0 || !strings.Contains(errOut, "not following the log") {
				t.Errorf("sweep: code %d, %s", code, errOut)
			}
			testkit.Must(t, away(proxy, false))
			proxy.Cut()
			r.AwaitConnected(t)
			if code, body := get(t, listen, "/readyz"); code != http.StatusOK {
				t.Errorf("readyz: %d %s", code, body)
			}
			if _, body := get(t, listen, "/metrics"); !strings.Contains(body, "canal_outbox_reader_connected 1") {
				t.Errorf("metrics:\n%s", body)
			}
			r.Stop(t)
		})
	}
}

// get sends a request to the process; 0 when it fails.
func get(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	testkit.Must(t, err)
	return response.StatusCode, string(text)
}
