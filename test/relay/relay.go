package relay

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Deadlines of a machine that is busy with other things.
const (
	startDeadline = 3 * time.Minute
	stopDeadline  = 3 * time.Minute
	// statusDeadline is short, so that a test continues to look when a process is frozen.
	statusDeadline = 10 * time.Second
)

// Options say what a relay is configured with.
type Options struct {
	Source string   // host:port of the database
	User   string   // root without a password when empty
	Tables []*Table // at least one
	Sink   string   // YAML of the sink, see Broker.Sink
	Extra  string   // more sections of YAML, each from the beginning of a line; they replace those that every test has
	YAML   string   // in place of all others: a whole configuration, to which those sections are added too
}

// Relay is one configuration and state directory with, at most times, one running process.
type Relay struct {
	Env     []string // additional environment of a started process, and of commands
	Program string   // the binary that Start runs; "" is that of this source

	dir     string
	client  *admin.Client
	process *testkit.Process // of the last start
}

// The sweep looks often, so that what is left to it does not hold up a test. It cannot overtake the log: only rows that the
// log will not deliver any more are its own.
const settings = `checkpoint: {dir: %q}
fallback: {interval: 1s, threshold: 2s}
admin: {listen: ""}
log: {format: text}
`

// New writes the configuration. Nothing runs yet. At the end of the test the process is killed, and the last lines of its
// log are shown if the test failed.
func New(t testing.TB, opts Options) *Relay {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay-") // not t.TempDir, whose long names do not fit into a socket's address
	testkit.Must(t, err)
	r := &Relay{dir: dir}
	r.client = admin.NewClient(filepath.Join(r.StateDir(), "admin.sock"))
	r.Configure(t, opts)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the relay's last lines:\n%s", r.LogTail(60))
		}
		r.Kill()
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("%v", err)
		}
	})
	return r
}

// Configure writes the configuration again. A running process keeps the one that it was started with.
func (r *Relay) Configure(t testing.TB, opts Options) {
	t.Helper()
	if opts.User == "" {
		opts.User = "user: root"
	}
	var yaml strings.Builder
	if opts.Extra += opts.YAML; opts.YAML == "" {
		fmt.Fprintf(&yaml, "source: {address: %q, %s}\ntables:\n", opts.Source, opts.User)
		for _, table := range opts.Tables {
			fmt.Fprintf(&yaml, "  - %s\n", table.config())
		}
		fmt.Fprintf(&yaml, "sink: {%s}\n", opts.Sink)
	}
	fmt.Fprintln(&yaml, opts.Extra)
	for line := range strings.Lines(fmt.Sprintf(settings, r.StateDir())) {
		if section, _, _ := strings.Cut(line, " "); !strings.Contains("\n"+opts.Extra, "\n"+section) {
			yaml.WriteString(line)
		}
	}
	testkit.Must(t, os.WriteFile(r.Config(), []byte(yaml.String()), 0o600))
}

// Edit replaces texts of the configuration, each of which is there: old, new, old, new, and so on.
func (r *Relay) Edit(t testing.TB, oldnew ...string) {
	t.Helper()
	data, err := os.ReadFile(r.Config())
	testkit.Must(t, err)
	for i := 0; i < len(oldnew); i += 2 {
		if !bytes.Contains(data, []byte(oldnew[i])) {
			t.Fatalf("%q is not in the configuration:\n%s", oldnew[i], data)
		}
	}
	testkit.Must(t, os.WriteFile(r.Config(), []byte(strings.NewReplacer(oldnew...).Replace(string(data))), 0o600))
}

// Config is the path of the configuration.
func (r *Relay) Config() string { return filepath.Join(r.dir, "canal-outbox.yaml") }

// StateDir is the state directory.
func (r *Relay) StateDir() string { return filepath.Join(r.dir, "state") }

func (r *Relay) log() string { return filepath.Join(r.dir, "relay.log") }

// Start starts the process and returns when it reads the binlog. args follow `run`.
func (r *Relay) Start(t testing.TB, args ...string) {
	t.Helper()
	r.Launch(t, args...)
	r.AwaitConnected(t)
}

// Launch starts the process and does not wait.
func (r *Relay) Launch(t testing.TB, args ...string) {
	t.Helper()
	program := r.Program
	if program == "" {
		program = Binary(t, "")
	}
	r.launch(t, program, nil, args)
}

// Point is a place where a process that StartUntil started is held; see internal/relay/faultpoints.go.
type Point struct {
	name, file string
}

// Release lets the process continue.
func (p Point) Release(t testing.TB) {
	t.Helper()
	testkit.Must(t, os.Remove(p.file))
}

// StartUntil starts a process that is held at the n-th occurrence of a named point. It returns when the process has
// been started: it may come to the point before it reads the binlog.
func (r *Relay) StartUntil(t testing.TB, point string, n int) Point {
	t.Helper()
	p := Point{name: point, file: filepath.Join(t.TempDir(), "reached")}
	r.launch(t, Binary(t, "faultpoints"), []string{
		fmt.Sprintf("CANAL_OUTBOX_STOP_AT=%s:%d", point, n), "CANAL_OUTBOX_STOP_FILE=" + p.file,
	}, nil)
	return p
}

// reached reports whether the process is held at the point.
func (r *Relay) reached(p Point) bool {
	_, err := os.Stat(p.file)
	return err == nil
}

// Await returns when the process is held at the point.
func (r *Relay) Await(t testing.TB, p Point) {
	t.Helper()
	testkit.WaitFor(t, startDeadline, "the point "+p.name, func() bool {
		if !r.Running() {
			t.Fatalf("the relay ended before it came to %s", p.name)
		}
		return r.reached(p)
	})
}

func (r *Relay) launch(t testing.TB, binary string, env, args []string) {
	t.Helper()
	if r.Running() {
		t.Fatalf("the relay is running already")
	}
	cmd := exec.Command(binary, append([]string{"run", "--config", r.Config()}, args...)...)
	cmd.Env = slices.Concat(testkit.RelayEnvironment(), r.Env, env)
	var err error
	r.process, err = testkit.Launch(cmd, r.log())
	testkit.Must(t, err)
}

// AwaitConnected returns when the process reads the binlog.
func (r *Relay) AwaitConnected(t testing.TB) {
	t.Helper()
	testkit.WaitFor(t, startDeadline, "the relay to read the binlog", func() bool {
		if !r.Running() {
			t.Fatalf("the relay ended with code %d:\n%s", r.process.State().ExitCode(), r.LogTail(30))
		}
		s, err := r.Status()
		return err == nil && s.Source.State == "connected"
	})
}

// Running reports whether there is a process.
func (r *Relay) Running() bool { return r.process.Running() }

// PID is the id of the running process.
func (r *Relay) PID() int { return r.process.PID() }

// Kill ends the process with SIGKILL, if there is one.
func (r *Relay) Kill() {
	_ = r.process.Kill() // its error says that the process cannot be signalled, and then the test fails by what follows
}

// Terminate sends SIGTERM.
func (r *Relay) Terminate(t testing.TB) { t.Helper(); r.Signal(t, syscall.SIGTERM) }

// Signal sends a signal.
func (r *Relay) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	testkit.Must(t, r.process.Signal(sig))
}

// Freeze stops the process where it is (SIGSTOP), and Thaw lets it continue.
func (r *Relay) Freeze(t testing.TB) {
	t.Helper()
	r.Signal(t, syscall.SIGSTOP)
}

// Thaw undoes Freeze.
func (r *Relay) Thaw(t testing.TB) {
	t.Helper()
	r.Signal(t, syscall.SIGCONT)
}

// Stop ends the process with SIGTERM; anything but exit code 0 fails the test.
func (r *Relay) Stop(t testing.TB) {
	t.Helper()
	r.Terminate(t)
	if code := r.Wait(t); code != 0 {
		t.Fatalf("the relay ended with code %d after SIGTERM:\n%s", code, r.LogTail(30))
	}
}

// Wait returns the exit code of a process that ends by itself.
func (r *Relay) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-r.process.Exited():
	case <-time.After(stopDeadline):
		t.Fatalf("the relay did not end within %v:\n%s", stopDeadline, r.LogTail(30))
	}
	return r.process.State().ExitCode()
}

// Command runs another command of the program with this relay's configuration, such as `gaps list`.
func (r *Relay) Command(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stopDeadline)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, Binary(t, ""), append(args, "--config", r.Config())...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errOut, slices.Concat(testkit.RelayEnvironment(), r.Env)
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("run %v: %v", args, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// Status asks the running process how it is.
func (r *Relay) Status() (operator.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), statusDeadline)
	defer cancel()
	return r.client.Status(ctx)
}

// Client talks to the running process.
func (r *Relay) Client() *admin.Client { return r.client }

// Log returns the whole log over all starts.
func (r *Relay) Log(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(r.log())
	testkit.Must(t, err)
	return string(data)
}

// LogTail returns the last lines of the log over all starts.
func (r *Relay) LogTail(lines int) string { return testkit.LogTail(r.log(), lines) }
