package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink/stdout"
)

// awaiting is a configuration whose database is away and whose relay has worked before.
func awaiting(t *testing.T) *config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Source.Address, cfg.Source.User = testkit.FreeAddress(t), relayUser
	cfg.Tables = []config.Table{{Name: "a.b", Preset: "t_local_message"}}
	cfg.Sink = config.Use("stdout", stdout.NewSection())
	dir, err := os.MkdirTemp("", "wait-") // short: it holds a unix socket
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg.Checkpoint.Dir = filepath.Join(dir, "s")
	cfg.Admin.Listen = testkit.FreeAddress(t)
	state, err := checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
	testkit.Must(t, err)
	testkit.Must(t, state.Reset(server.ID{Flavor: outbox.MariaDB, ServerID: 1}, outbox.Position{File: "b.000001", Offset: 4}, 0, "test"))
	testkit.Must(t, state.Close())
	return &cfg
}

// A05: a start that waits for the database answers, and can be told to stop.
func TestA05_AwaitedDatabase(t *testing.T) {
	cfg := awaiting(t)
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: cfg.Checkpoint.Dir + ".notify", Net: "unixgram"})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, systemd.Close()) }()
	t.Setenv("NOTIFY_SOCKET", cfg.Checkpoint.Dir+".notify")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, Options{Version: "test"}, zap.NewNop()) }()
	testkit.WaitFor(t, 30*time.Second, "an answer", func() bool { code, _ := probe(cfg, "/healthz"); return code == http.StatusOK })
	if code, body := probe(cfg, "/readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, body)
	}
	if _, body := probe(cfg, "/metrics"); !strings.Contains(body, "canal_outbox_reader_connected 0\n") {
		t.Errorf("metrics:\n%s", body)
	}
	client := admin.NewClient(cfg.Checkpoint.Socket())
	if s, err := client.Status(ctx); err != nil || s.State != "degraded" || s.Source.State != "waiting" || s.Source.Error == "" ||
		len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0], "waiting for the database: "+s.Source.Error) || s.Positions.Checkpoint.File != "b.000001" {
		t.Errorf("status: %+v, %v", s, err)
	}
	if cp, err := client.Checkpoint(ctx); err != nil || cp.Position.File != "b.000001" {
		t.Errorf("checkpoint: %+v, %v", cp, err)
	}
	if err := client.Sweep(ctx); err == nil || !strings.Contains(err.Error(), relay.ErrNotRunning.Error()) {
		t.Errorf("sweep: %v", err)
	}
	if _, err := client.SetCheckpoint(ctx, operator.Target{Latest: true}); err == nil || !strings.Contains(err.Error(), "the database must be asked") {
		t.Errorf("set: %v", err)
	}
	if err := Run(ctx, cfg, Options{}, zap.NewNop()); !errors.Is(err, checkpoint.ErrLocked) {
		t.Errorf("C01, a second process on the directory: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("told to stop: %v", err)
	}
	if code, _ := probe(cfg, "/healthz"); code != 0 {
		t.Error("the admin API answers after the end")
	}
	testkit.Must(t, systemd.SetReadDeadline(time.Now().Add(3*time.Minute)))
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		text := make([]byte, 100)
		n, err := systemd.Read(text)
		testkit.Must(t, err)
		if string(text[:n]) != want {
			t.Errorf("systemd received %q, want %q", text[:n], want)
		}
	}
}

// An address of the admin API that is taken ends the start instead of being tried for ever.
func TestAwaitedDatabaseWithATakenAddress(t *testing.T) {
	cfg := awaiting(t)
	taken, err := net.Listen("tcp", cfg.Admin.Listen)
	testkit.Must(t, err)
	defer func() { testkit.Must(t, taken.Close()) }()
	if err := Run(t.Context(), cfg, Options{}, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "another process uses it") {
		t.Errorf("got %v", err)
	}
}

// probe calls the admin API; 0 when the request fails.
func probe(cfg *config.Config, path string) (code int, body string) {
	response, err := http.Get("http://" + cfg.Admin.Listen + path)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}
