package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// Each peer is one line, in the order of the configuration, and one that hangs, lies or refuses harms no other line.
func TestPeers(t *testing.T) {
	good := serve(t, Config{Address: "127.0.0.1:0", Token: setting.NewSecret("a-long-enough-token")}, &fake{})
	released := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}))
	defer hanging.Close()
	defer close(released)
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/away/api/v1/status" {
			http.Redirect(w, r, good+"/api/v1/status", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte("<html>"))
	}))
	defer other.Close()
	all := []Peer{
		{URL: hanging.URL}, {URL: good, Token: setting.NewSecret("a-long-enough-token")}, {URL: good + "/", Token: setting.NewSecret("wrong")}, {URL: other.URL}, {URL: other.URL + "/away", Token: setting.NewSecret("a-long-enough-token")}, {URL: "http://127.0.0.1:1"},
	}
	url := serve(t, Config{Address: "127.0.0.1:0", Peers: all}, &fake{})
	var lines []PeerStatus
	if err := json.Unmarshal([]byte(ask(t, "GET", url+"/api/v1/peers", "").body), &lines); err != nil || len(lines) != len(all) {
		t.Fatalf("%+v, %v", lines, err)
	}
	for i, want := range []string{"no answer within", "", "401", "its answer is no status", "302", "refused"} {
		if l := lines[i]; want == "" && (l.Error != "" || l.State != "working" || l.Pending != 3 || *l.LagSeconds != 0.5) || want != "" && (!strings.Contains(l.Error, want) || l.State != "") {
			t.Errorf("line %d: %+v, want %q", i, l, want)
		}
	}
	if got := ask(t, "GET", serve(t, Config{Address: "127.0.0.1:0"}, &fake{})+"/api/v1/peers", "").body; got != "[]\n" {
		t.Errorf("without peers: %q", got)
	}
	asked.Store(0)
	shared := newPeers([]Peer{{URL: other.URL}})
	shared.age = time.Hour
	for range 3 {
		shared.look(t.Context())
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("a peer was asked %d times by 3 looks, want once", n)
	}
}
