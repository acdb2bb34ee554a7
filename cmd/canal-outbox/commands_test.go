package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// result is the result of a command line.
type result struct {
	code     int
	out, err string
}

func run(input string, args ...string) result {
	var out, errOut bytes.Buffer
	code := execute(context.Background(), args, strings.NewReader(input), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

// configure writes a configuration with its own state directory and returns both paths.
func configure(t *testing.T) (file, dir string) {
	t.Helper()
	root, err := os.MkdirTemp("", "canal-outbox-cmd-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	file, dir = filepath.Join(root, "c.yaml"), filepath.Join(root, "state")
	text := fmt.Sprintf("source: {address: '127.0.0.1:1', user: relay, password: canary-c1a5}\n"+
		"tables: [{name: shop.t_local_message, preset: t_local_message}]\nsink: {stdout: {}}\ncheckpoint: {dir: %s}\n", dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, dir
}

// unasked has the methods that no test calls.
type unasked struct{ admin.Service }

// relayStub answers on the socket as a running relay would.
type relayStub struct {
	unasked
	messagesDaemon
	state string // "" for degraded
	stuck error
	moved []operator.Target
	acked []uint64
}

var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(offset uint64) outbox.Position { return outbox.Position{File: "binlog.000002", Offset: offset} }

func (d *relayStub) Paused() *outbox.Pause { return nil }

func (d *relayStub) Status(context.Context) operator.Status {
	lag, behind, age, p50, p99 := 0.25, int64(4096), 1.5, 1.25, 7.5
	return operator.Status{
		Version: "1.2.3", StartedAt: moment, UptimeSeconds: 3661, State: cmp.Or(d.state, "degraded"), Problems: []string{"topic orders is suspended"},
		Lease: operator.LeaseStatus{
			State: "active", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), SinceSeconds: 3661, Term: 7, ValidSeconds: 8.5,
		},
		Source:     operator.SourceStatus{Address: "db:3306", Server: "9.7.4, mysql", State: "connected", LagSeconds: &lag, BehindBytes: &behind, LastEventSeconds: &age},
		Throughput: operator.ThroughputStatus{Rate: 512.5, LatencyP50: &p50, LatencyP99: &p99, Published: 1000, Retried: 3, Failed: 1, Deferred: 7, Swept: 5},
		Positions:  operator.Positions{Server: at(900), Read: at(800), Offered: at(800), Settled: at(700), Checkpoint: at(600)},
		Tables: []operator.TableStatus{{
			Name: "shop.t_local_message", Rows: map[string]int64{"pending": 3, "failed": 1, "sent": 1200, "held": 100_000, "consumed": 7}, OldestPendingSeconds: &age,
			Kinds: map[string]string{"sent": "estimate", "held": "at_least"}, SampledAt: &moment, SampledSeconds: &age,
		}},
		InFlight:  operator.InFlightStatus{Messages: 12, Bytes: 2048, MaxMessages: 8192, MaxBytes: 64 << 20, AckPending: 4},
		Sink:      operator.SinkStatus{Kind: "kafka", Breaker: "closed", SuspendedTopics: []operator.SuspendedTopic{{Topic: "orders", Reason: "unknown topic"}}},
		Sweep:     operator.SweepStatus{LastSeconds: &age, LastRows: 2},
		Retention: &operator.RetentionStatus{LastSeconds: &age, Rows: 1200},
		GapsOpen:  1,
	}
}

func (d *relayStub) Live() error { return d.stuck }

func (d *relayStub) Checkpoint(context.Context) (operator.Checkpoint, error) {
	return operator.Checkpoint{Position: at(600), Source: "mysql server_uuid x", Journal: 2}, nil
}

func (d *relayStub) History(context.Context, int) ([]operator.HistoryEntry, error) {
	return []operator.HistoryEntry{{Number: 2, At: moment, Position: at(600), Source: "mysql server_uuid x"}, {Number: 1, At: moment, Position: at(4), Source: "mysql server_uuid x", Reason: "gap: first_start"}}, nil
}

func (d *relayStub) SetCheckpoint(_ context.Context, t operator.Target) (operator.Preview, error) {
	d.moved = append(d.moved, t)
	bytes := int64(300)
	return operator.Preview{
		From: at(600), To: at(900), Applied: !t.DryRun, Notes: []string{"what lies between is not read"},
		Bytes: &bytes, Rows: []operator.PreviewRows{{Table: "shop.t_local_message", Pending: 3, Sending: 1, Failed: 2}},
	}, nil
}

func (d *relayStub) Gaps(context.Context) ([]outbox.Gap, error) {
	return []outbox.Gap{{ID: 3, From: at(4), To: at(900), Cause: outbox.GapPurged, At: moment}}, nil
}

func (d *relayStub) AckGap(_ context.Context, id uint64) error {
	if id == 9 {
		return operator.NotFoundf("there is no gap 9")
	}
	d.acked = append(d.acked, id)
	return nil
}

func (d *relayStub) Sweep(context.Context) error { return nil }

func (d *relayStub) Retention(context.Context) error { return nil }

// start starts a relayStub for the directory.
func start(t *testing.T, dir string) *relayStub {
	t.Helper()
	d := &relayStub{}
	s, err := admin.Listen(admin.Config{Socket: config.Checkpoint{Dir: dir}.Socket()}, d, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return d
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestOutputThroughTheDaemon(t *testing.T) {
	file, dir := configure(t)
	start(t, dir)
	for name, args := range map[string][]string{
		"status":     {"status"},
		"checkpoint": {"checkpoint", "show"},
		"history":    {"checkpoint", "history"},
		"dry-run":    {"checkpoint", "set", "--latest", "--dry-run"},
		"gaps":       {"gaps", "list"},
		"sweep":      {"sweep"},
		"retention":  {"retention"},
	} {
		for _, format := range []string{"text", "json"} {
			got := run("", append(args, "-c", file, "-o", format)...)
			want := exitOK
			if name == "status" { // it is degraded
				want = exitProblems
			}
			if got.code != want || got.err != "" {
				t.Errorf("%v: %+v", args, got)
			}
			golden(t, name+"."+format, got.out)
			if format == "json" && !json.Valid([]byte(got.out)) {
				t.Errorf("%v: not JSON: %s", args, got.out)
			}
		}
	}
}

func TestCheckpointSetAsksFirst(t *testing.T) {
	file, dir := configure(t)
	d := start(t, dir)
	got := run("y\n", "checkpoint", "set", "--latest", "-c", file) // not a terminal: an answer on a pipe is none
	if got.code != exitRefused || !strings.Contains(got.err, "--yes") || !strings.Contains(got.err, "binlog.000002:900") {
		t.Errorf("%+v", got)
	}
	if len(d.moved) != 1 || !d.moved[0].DryRun {
		t.Fatalf("asked for %+v", d.moved)
	}
	got = run("", "checkpoint", "rollback", "1", "--yes", "-c", file)
	if got.code != 0 || !strings.Contains(got.out, "moved") {
		t.Errorf("%+v", got)
	}
	if last := d.moved[len(d.moved)-1]; last.DryRun || last.Entry == nil || *last.Entry != 1 {
		t.Errorf("asked for %+v", last)
	}
}

func TestGapsAck(t *testing.T) {
	file, dir := configure(t)
	d := start(t, dir)
	if got := run("", "gaps", "ack", "3", "4", "-c", file); got.code != 0 || fmt.Sprint(d.acked) != "[3 4]" {
		t.Errorf("%+v, %v", got, d.acked)
	}
	if got := run("", "gaps", "ack", "9", "-c", file, "-o", "json"); got.code != exitFailure || !strings.Contains(got.err, `"code":"not_found"`) {
		t.Errorf("%+v", got)
	}
}

func TestWithoutADaemonTheStoreIsOpened(t *testing.T) {
	file, dir := configure(t)
	if got := run("", "checkpoint", "show", "-c", file); got.code != exitFailure || !strings.Contains(got.err, "there is no state in") {
		t.Errorf("no directory: %+v", got)
	}
	state, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Reset(server.ID{Flavor: outbox.MySQL, UUID: "u"}, at(600), 0, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := state.AddGap(outbox.Gap{From: at(4), To: at(600), Cause: outbox.GapPurged, At: moment}); err != nil {
		t.Fatal(err)
	}
	if got := run("", "checkpoint", "show", "-c", file); got.code != exitRefused || !strings.Contains(got.err, "in use by another") {
		t.Errorf("C01, locked: %+v", got)
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	if got := run("", "checkpoint", "show", "-c", file); got.code != 0 || !strings.Contains(got.out, "binlog.000002:600") {
		t.Errorf("show: %+v", got)
	}
	if got := run("", "gaps", "ack", "1", "-c", file); got.code != 0 {
		t.Errorf("ack: %+v", got)
	}
	if got := run("", "gaps", "list", "-c", file, "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"acknowledged": true`) {
		t.Errorf("list: %+v", got)
	}
	if got := run("", "checkpoint", "set", "--latest", "--yes", "-c", file); got.code != exitFailure || !strings.Contains(got.err, "the database must be asked") {
		t.Errorf("set without a database: %+v", got)
	}
	if got := run("", "status", "-c", file); got.code != exitFailure || !strings.Contains(got.err, "no relay is running") {
		t.Errorf("status: %+v", got)
	}
}

func TestWrongUsage(t *testing.T) {
	file, _ := configure(t)
	for _, args := range [][]string{
		{"frob"},
		{"checkpoint"},
		{"checkpoint", "frob"},
		{"status", "--frob"},
		{"status", "extra"},
		{"version", "-o", "xml"},
		{"checkpoint", "rollback"},
		{"checkpoint", "rollback", "x", "-c", file},
		{"checkpoint", "set", "-c", file},
		{"checkpoint", "set", "--latest", "--earliest", "-c", file},
		{"checkpoint", "set", "--file", "binlog.000001", "-c", file},
		{"checkpoint", "history", "--limit", "0", "-c", file},
		{"gaps", "ack", "-c", file},
		{"gaps", "ack", "x", "-c", file},
		{"migrate", "--preset", "t_local_message"},
		{"migrate", "--preset", "absent", "--print"},
		{"migrate", "--table", "a.b"},
	} {
		if got := run("", args...); got.code != exitUsage || got.err == "" || got.out != "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestConfigCommands(t *testing.T) {
	file, _ := configure(t)
	if got := run("", "config", "validate", "-c", file); got.code != 0 || !strings.Contains(got.out, "is valid, 1 table(s)") {
		t.Errorf("%+v", got)
	}
	for _, format := range []string{"text", "json"} {
		got := run("", "config", "print", "-c", file, "-o", format)
		if got.code != 0 || strings.Contains(got.out+got.err, "canary-c1a5") || !strings.Contains(got.out, "shop.t_local_message") {
			t.Errorf("%+v", got)
		}
	}
	t.Run("files of TLS", func(t *testing.T) {
		t.Setenv("CANAL_OUTBOX_SOURCE_TLS_MODE", "verify-ca")
		t.Setenv("CANAL_OUTBOX_SOURCE_TLS_CA", "/nonexistent/ca.pem")
		if got := run("", "config", "validate", "-c", file); got.code != exitFailure || !strings.Contains(got.err, `source.tls.ca = "/nonexistent/ca.pem": cannot be read: no such file`) {
			t.Errorf("%+v", got)
		}
	})
	if err := os.WriteFile(file, []byte("source: {pasword: canary-c1a5}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"config", "validate"}, {"config", "print"}, {"run"}, {"doctor"}, {"status"}} {
		got := run("", append(command, "-c", file, "-o", "json")...)
		var body struct {
			Error failure `json:"error"`
		}
		if err := json.Unmarshal([]byte(got.err), &body); err != nil || len(body.Error.Faults) < 3 || got.code != exitFailure {
			t.Errorf("%v: %+v (%v)", command, got, err)
		}
		if strings.Contains(got.out+got.err, "canary-c1a5") {
			t.Errorf("%v shows a secret: %+v", command, got)
		}
	}
}

func TestUnknownVariablesAreNamed(t *testing.T) {
	file, _ := configure(t)
	t.Setenv("CANAL_OUTBOX_SOURCE_PASWORD", "canary-c1a5")
	got := run("", "config", "validate", "-c", file)
	if got.code != 0 || !strings.Contains(got.err, "CANAL_OUTBOX_SOURCE_PASWORD") || strings.Contains(got.err, "canary") {
		t.Errorf("%+v", got)
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{fmt.Errorf("x: %w", operator.Usagef("y")), 2},
		{fmt.Errorf("x: %w", operator.Refusedf("y")), 3},
		{fmt.Errorf("x: %w", &relay.RefusedError{Why: "y"}), 3},
		{errors.Join(&relay.RefusedError{Why: "y"}, errors.New("close")), 3},
		{operator.NotFoundf("y"), 1},
		{&config.Faults{}, 1},
	} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%v: got %d, want %d", c.err, got, c.code)
		}
	}
}

// Every command has a description and an example.
func TestHelp(t *testing.T) {
	root := newRoot(&cli{})
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s has no short help", cmd.CommandPath())
		}
		if !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := run("", "completion", shell); got.code != 0 || len(got.out) < 100 {
			t.Errorf("completion %s: %+v", shell, got)
		}
	}
}

func TestMigratePrintsWithoutAConfiguration(t *testing.T) {
	got := run("", "migrate", "--preset", "t_local_message", "--table", "shop.messages", "--print")
	if got.code != 0 || !strings.Contains(got.out, "CREATE TABLE IF NOT EXISTS `shop`.`messages`") {
		t.Errorf("%+v", got)
	}
}
