package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a Service whose answers are its fields.
type fake struct {
	messagesFake
	live, ready, sweepErr error
	target                operator.Target
	span                  operator.Span
	paused                *outbox.Pause
	acked                 uint64
	sweeps, passes, looks atomic.Int32
}

func (f *fake) Live() error  { return f.live }
func (f *fake) Ready() error { return f.ready }

func (f *fake) Status(context.Context) operator.Status {
	f.looks.Add(1)
	lag := 0.5
	return operator.Status{
		Version: "1.2.3", State: "working", Problems: []string{}, Source: operator.SourceStatus{State: "connected", LagSeconds: &lag},
		Positions: operator.Positions{Server: outbox.Position{File: "binlog.000002", Offset: 900}, Read: outbox.Position{File: "binlog.000002", Offset: 800}},
		Tables:    []operator.TableStatus{{Name: "shop.t_local_message", Rows: map[string]int64{"pending": 3}}},
		Sink:      operator.SinkStatus{Kind: "kafka", Breaker: "closed", SuspendedTopics: []operator.SuspendedTopic{}},
	}
}

func (f *fake) Timeline(_ context.Context, span operator.Span) (operator.Timeline, error) {
	f.span = span
	return operator.Timeline{StepSeconds: int(span.Step.Seconds()), At: []int64{1}, Series: map[string][]*float64{"lag_seconds": {nil}}, Marks: []operator.Mark{}}, nil
}

func (f *fake) Checkpoint(context.Context) (operator.Checkpoint, error) {
	return operator.Checkpoint{Position: outbox.Position{File: "binlog.000002", Offset: 700}, Source: "mysql"}, nil
}

func (f *fake) History(_ context.Context, limit int) ([]operator.HistoryEntry, error) {
	return make([]operator.HistoryEntry, min(limit, 3)), nil
}

func (f *fake) SetCheckpoint(_ context.Context, t operator.Target) (operator.Preview, error) {
	f.target = t
	if t.Earliest {
		return operator.Preview{}, operator.Refusedf("the position was purged")
	}
	return operator.Preview{To: outbox.Position{File: t.File, Offset: t.Pos}, Applied: !t.DryRun, Notes: []string{}}, nil
}

func (f *fake) Gaps(context.Context) ([]outbox.Gap, error) { return nil, nil }

func (f *fake) AckGap(_ context.Context, id uint64) error {
	if id == 404 {
		return operator.NotFoundf("there is no gap 404")
	}
	f.acked = id
	return nil
}

func (f *fake) Sweep(context.Context) error     { f.sweeps.Add(1); return f.sweepErr }
func (f *fake) Retention(context.Context) error { f.passes.Add(1); return f.sweepErr }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs a server for the test and returns its base URL.
func serve(t *testing.T, cfg Config, service Service) string {
	t.Helper()
	s := listen(t, cfg, service)
	if s.Addr() == nil {
		return ""
	}
	return "http://" + s.Addr().String()
}

// listen runs a server for the test.
func listen(t *testing.T, cfg Config, service Service) *Server {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "canal_outbox_test"}))
	s, err := Listen(cfg, service, registry, zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

// socketIn is a path for a socket, in a directory of its own: t.TempDir may be too long for one.
func socketIn(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "admin")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "s")
}

// handled is the answer of the routes to a request, without a network.
func handled(service Service, method, path, query, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/", strings.NewReader(body))
	r.URL.Path, r.URL.RawQuery = path, query
	r.Header.Set("Content-Type", asJSON)
	w := httptest.NewRecorder()
	newAPI(service, prometheus.NewRegistry(), zap.NewNop()).routes().ServeHTTP(w, r)
	return w
}

// fits fails a fuzz test unless an answer is JSON with a status that the API has.
func fits(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	switch w.Code {
	case 200, 400, 404, 409:
		if w.Header().Get("Content-Type") == asJSON && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("the answer is no JSON: %q", w.Body)
		}
	case 301, 307, 405: // another form of the path, or one that is only read
	default:
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

type answer struct {
	status int
	body   string
	header http.Header
}

func ask(t *testing.T, method, url, body string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	must(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	must(t, err)
	return answer{response.StatusCode, string(data), response.Header}
}

const asJSON = "application/json"

func TestRoutes(t *testing.T) {
	url := serve(t, Config{Address: "127.0.0.1:0"}, &fake{live: nil, ready: errors.New("not started yet")})
	for _, c := range []struct {
		method, path, body string
		status             int
		contains           string
	}{
		{"GET", "/healthz", "", 200, "ok"},
		{"GET", "/readyz", "", 503, "not started yet"},
		{"GET", "/metrics", "", 200, "canal_outbox_test 0"},
		{"GET", "/api/v1/status", "", 200, `"lag_seconds":0.5`},
		{"GET", "/api/v1/history", "", 200, `{"step_seconds":10,"at":[1],"series":{"lag_seconds":[null]},"marks":[]}`},
		{"GET", "/api/v1/history?from=24h", "", 200, `{"step_seconds":240,`},
		{"GET", "/api/v1/history?from=30h&step=61s", "", 200, `{"step_seconds":70,`},
		{"GET", "/api/v1/history?from=2026-01-02T15:04:05Z&step=1m", "", 200, `{"step_seconds":60,`},
		{"GET", "/api/v1/history?from=yesterday", "", 400, `from \"yesterday\" is neither a time`},
		{"GET", "/api/v1/history?from=-1h", "", 400, "not be in the future"},
		{"GET", "/api/v1/history?step=1s", "", 400, "step must be a duration from 10s to 24h0m0s"},
		{"GET", "/api/v1/checkpoint", "", 200, `"pos":700`},
		{"GET", "/api/v1/checkpoint/history?limit=2", "", 200, `[{"number":0`},
		{"GET", "/api/v1/checkpoint/history?limit=0", "", 400, "limit must be"},
		{"GET", "/api/v1/gaps", "", 200, "[]"},
		{"POST", "/api/v1/gaps/7/ack", "{}", 200, "{}"},
		{"POST", "/api/v1/gaps/404/ack", "{}", 404, `"code":"not_found"`},
		{"POST", "/api/v1/gaps/x/ack", "{}", 400, "not the number"},
		{"POST", "/api/v1/sweep", "{}", 200, "{}"},
		{"POST", "/api/v1/checkpoint", `{"latest":true,"dry_run":true}`, 200, `"applied":false`},
		{"POST", "/api/v1/checkpoint", `{"earliest":true}`, 409, `"code":"refused"`},
		{"POST", "/api/v1/checkpoint", `{"lates":true}`, 400, "lates"},
		{"POST", "/api/v1/checkpoint", `{}`, 400, "exactly one"},
		{"GET", "/api/v1/nothing", "", 404, "there is no GET"},
		{"GET", "/nothing", "", 404, ""},
		{"GET", "/", "", 200, "<h1>canal-outbox</h1>"},
	} {
		got := ask(t, c.method, url+c.path, c.body, "Content-Type", asJSON)
		if got.status != c.status || !strings.Contains(got.body, c.contains) {
			t.Errorf("%s %s: got %d %s, want %d with %q", c.method, c.path, got.status, got.body, c.status, c.contains)
		}
	}
}

func TestOnlyThisMachineWithoutAToken(t *testing.T) {
	service := &fake{}
	url := serve(t, Config{Address: "127.0.0.1:0"}, service)
	for _, c := range []struct {
		name   string
		method string
		header []string
		status int
	}{
		{"loopback by name", "POST", []string{"Host", "localhost:9180", "Content-Type", asJSON}, 200},
		{"rebound name, reading", "GET", []string{"Host", "evil.example:9180"}, 403},
		{"rebound name, acting", "POST", []string{"Host", "evil.example", "Content-Type", asJSON}, 403},
		{"another origin", "POST", []string{"Origin", "https://evil.example", "Content-Type", asJSON}, 403},
		{"another site, as the browser says", "POST", []string{"Sec-Fetch-Site", "cross-site", "Content-Type", asJSON}, 403},
		{"a form", "POST", []string{"Content-Type", "application/x-www-form-urlencoded"}, 400},
		{"plain text", "POST", []string{"Content-Type", "text/plain"}, 400},
		{"nothing said", "POST", nil, 400},
	} {
		before := service.sweeps.Load()
		path := "/api/v1/sweep"
		if c.method == "GET" {
			path = "/api/v1/status"
		}
		if got := ask(t, c.method, url+path, "{}", c.header...); got.status != c.status {
			t.Errorf("%s: got %d %s, want %d", c.name, got.status, got.body, c.status)
		}
		if acted := service.sweeps.Load() != before; acted != (c.status == 200) {
			t.Errorf("%s: acted is %v", c.name, acted)
		}
	}
}

func TestEventsStreamTheStatus(t *testing.T) {
	url := serve(t, Config{Address: "127.0.0.1:0"}, &fake{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", url+"/api/v1/events", nil)
	must(t, err)
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for seen := 0; seen < 2; {
		if !lines.Scan() {
			t.Fatalf("the stream ended after %d events: %v", seen, lines.Err())
		}
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue
		}
		var s operator.Status
		if err := json.Unmarshal([]byte(data), &s); err != nil || s.Version != "1.2.3" {
			t.Fatalf("%q: %v", data, err)
		}
		seen++
	}
}

func TestStreamsAreBounded(t *testing.T) {
	a := newAPI(&fake{}, prometheus.NewRegistry(), zap.NewNop())
	a.routes()
	for range maxStreams {
		a.streams <- struct{}{}
	}
	w := httptest.NewRecorder()
	if a.events(w, httptest.NewRequest("GET", "/api/v1/events", nil)); w.Code != 500 {
		t.Fatalf("got %d", w.Code)
	}
}

func TestClientOverTheSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "state", "admin.sock")
	service := &fake{}
	serve(t, Config{Socket: socket}, service)
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info, err)
	}
	ctx, c := context.Background(), NewClient(socket)
	if s, err := c.Status(ctx); err != nil || s.Source.LagSeconds == nil || *s.Source.LagSeconds != 0.5 {
		t.Errorf("status: %+v, %v", s, err)
	}
	if cp, err := c.Checkpoint(ctx); err != nil || cp.Position.Offset != 700 {
		t.Errorf("checkpoint: %+v, %v", cp, err)
	}
	if h, err := c.History(ctx, 2); err != nil || len(h) != 2 {
		t.Errorf("history: %v, %v", h, err)
	}
	want := operator.Target{File: "binlog.000007", Pos: 154}
	if p, err := c.SetCheckpoint(ctx, want); err != nil || !p.Applied || p.To.Offset != 154 || service.target != want {
		t.Errorf("set: %+v, %v, %+v", p, err, service.target)
	}
	var refused *operator.Error
	if _, err := c.SetCheckpoint(ctx, operator.Target{Earliest: true}); !errors.As(err, &refused) || refused.Code != operator.CodeRefused {
		t.Errorf("refused: %v", err)
	}
	if err := c.AckGap(ctx, 7); err != nil || service.acked != 7 {
		t.Errorf("ack: %v", err)
	}
	if gaps, err := c.Gaps(ctx); err != nil || len(gaps) != 0 {
		t.Errorf("gaps: %v, %v", gaps, err)
	}
	if err := c.Sweep(ctx); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if err := c.Retention(ctx); err != nil || service.passes.Load() != 1 {
		t.Errorf("retention: %v", err)
	}
	service.sweepErr = errors.New("the database is away")
	if err := c.Sweep(ctx); !errors.As(err, &refused) || refused.Code != operator.CodeFailure || refused.Message != "the database is away" {
		t.Errorf("failure: %v", err)
	}
	if _, err := NewClient(socket + "x").Status(ctx); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("without a relay: %v", err)
	}
}

func TestASocketLeftBehindIsReplacedAndALivingOneIsNot(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	must(t, err)
	left.SetUnlinkOnClose(false)
	must(t, left.Close())
	if _, err := NewClient(socket).Status(context.Background()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("a dead socket: %v", err)
	}
	serve(t, Config{Socket: socket}, &fake{})
	if _, err := NewClient(socket).Status(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Config{Socket: socket}, &fake{}, prometheus.NewRegistry(), zap.NewNop()); err == nil {
		t.Fatal("a second relay took the socket")
	}
}

func TestTargetCheck(t *testing.T) {
	entry := uint64(3)
	for _, c := range []struct {
		t  operator.Target
		ok bool
	}{
		{operator.Target{}, false},
		{operator.Target{Latest: true}, true},
		{operator.Target{Latest: true, Earliest: true}, false},
		{operator.Target{Entry: &entry}, true},
		{operator.Target{GTID: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"}, true},
		{operator.Target{GTID: "0-1-100"}, true},
		{operator.Target{GTID: "garbage"}, false},
		{operator.Target{File: "binlog.000001", Pos: 4}, true},
		{operator.Target{File: "binlog.000001"}, false},
		{operator.Target{File: "../etc/passwd.1", Pos: 4}, false},
		{operator.Target{Pos: 4}, false},
	} {
		if err := c.t.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.t, err)
		}
	}
}

func FuzzTarget(f *testing.F) {
	f.Add([]byte(`{"gtid":"0-1-100"}`))
	f.Add([]byte(`{"file":"binlog.000001","pos":4,"dry_run":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var target operator.Target
		if json.Unmarshal(data, &target) == nil {
			_ = target.Check()
		}
	})
}
