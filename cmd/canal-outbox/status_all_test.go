package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// relayWith answers as a relay with a status does.
func relayWith(t *testing.T, token string, s operator.Status) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/status" || r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if err := json.NewEncoder(w).Encode(s); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// All relays are in the list, the worst first, and one that does not answer hides no other.
func TestStatusOfAll(t *testing.T) {
	lag, more := 0.5, 7.0
	good := operator.Status{Version: "1", State: "working", Source: operator.SourceStatus{LagSeconds: &lag}, Throughput: operator.ThroughputStatus{Rate: 10}}
	late := good
	late.Source.LagSeconds = &more
	stuck := operator.Status{
		Version: "1", State: "stuck", Problems: []string{"the binlog is gone"}, Tables: []operator.TableStatus{{Rows: map[string]int64{"pending": 30, "failed": 2}}},
	}
	const token = "a-token-that-is-long-enough"
	urls := []string{relayWith(t, token, good), relayWith(t, token, stuck), relayWith(t, token, late), relayWith(t, "another", good)}
	file, _ := configure(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	peers := "admin:\n  peers:\n"
	for _, url := range urls {
		peers += "    - {url: '" + url + "', token: " + token + "}\n"
	}
	if err := os.WriteFile(file, append(text, peers...), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run("", "status", "--all", "-c", file)
	if got.code != exitProblems {
		t.Fatalf("%+v", got)
	}
	var order []string
	for line := range strings.Lines(got.out) {
		name, _, _ := strings.Cut(line, " ")
		order = append(order, strings.TrimSpace(name))
	}
	want := []string{"relay", urls[3], "", "this", "", urls[1], "", urls[2], urls[0], "5"}
	if got.out[:5] != "relay" || len(order) != len(want) || !strings.Contains(got.out, "the binlog is gone") || !strings.Contains(got.out, "5 relays") || !strings.Contains(got.out, "3 with problems") {
		t.Errorf("got %q\n%s", order, got.out)
	}
	for i, name := range want[4:9] {
		if order[4+i] != name {
			t.Errorf("line %d is of %q, not of %q:\n%s", 4+i, order[4+i], name, got.out)
		}
	}
	var f fleet
	if got = run("", "status", "--all", "-o", "json", "-c", file); json.Unmarshal([]byte(got.out), &f) != nil || f.Total.Pending != 30 || f.Total.Failed != 2 || f.Total.Rate != 20 {
		t.Errorf("%+v\n%s", f, got.out)
	}
	if got := run("", "status", "--all", "--live", "-c", file); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}
