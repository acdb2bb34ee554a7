package security

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// patience is how long a test waits for a condition, on a machine with other work.
const patience = 3 * time.Minute

// child is one configuration and state directory with, at times, a running process. The output of the process is kept over all
// its starts.
type child struct {
	t      testing.TB
	dir    string
	env    []string // in addition to this process's
	tags   string   // of the build
	cmd    *exec.Cmd
	gone   chan struct{} // closed when cmd has been waited for
	client *admin.Client
}

// newChild writes a configuration. Nothing runs yet.
func newChild(t testing.TB, yaml string, env ...string) *child {
	t.Helper()
	dir, err := os.MkdirTemp("", "security-") // not t.TempDir, whose long names do not fit into a socket's address
	testkit.Must(t, err)
	c := &child{t: t, dir: dir, env: env}
	c.client = admin.NewClient(c.socket())
	c.configure(yaml)
	t.Cleanup(func() {
		c.kill()
		if out := c.printed(); t.Failed() {
			t.Logf("the last of what the relay printed:\n%s", out[max(0, len(out)-6000):])
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

// configure replaces the configuration: yaml, the state directory and, unless yaml sets it, no HTTP and frequent sweeps.
func (c *child) configure(yaml string) {
	c.t.Helper()
	if !strings.Contains(yaml, "admin:") {
		yaml += "\nadmin: {listen: \"\"}"
	}
	if !strings.Contains(yaml, "fallback:") {
		yaml += "\nfallback: {interval: 1s, threshold: 2s}"
	}
	text := fmt.Sprintf("%s\ncheckpoint: {dir: %q}\n", yaml, c.stateDir())
	testkit.Must(c.t, os.WriteFile(c.path("canal-outbox.yaml"), []byte(text), 0o600))
}

func (c *child) path(name string) string { return filepath.Join(c.dir, name) }
func (c *child) stateDir() string        { return c.path("state") }
func (c *child) socket() string          { return filepath.Join(c.stateDir(), "admin.sock") }

// program returns a command of the built binary.
func (c *child) program(ctx context.Context, args ...string) *exec.Cmd {
	c.t.Helper()
	cmd := exec.CommandContext(ctx, relay.Binary(c.t, c.tags), append(args, "--config", c.path("canal-outbox.yaml"))...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CANAL_OUTBOX_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env, cmd.SysProcAttr = append(cmd.Env, c.env...), attributes()
	return cmd
}

// launch starts `run` and does not wait.
func (c *child) launch(env ...string) {
	c.t.Helper()
	cmd := c.program(context.Background(), "run")
	cmd.Env = append(cmd.Env, env...)
	out, err := os.OpenFile(c.path("printed"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	testkit.Must(c.t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	testkit.Must(c.t, cmd.Start())
	c.cmd, c.gone = cmd, make(chan struct{})
	go func(gone chan struct{}) {
		defer close(gone)
		_ = cmd.Wait() // how it ended is in ProcessState
	}(c.gone)
}

// start starts `run` and returns when it reads the binlog.
func (c *child) start() {
	c.t.Helper()
	c.launch()
	testkit.WaitFor(c.t, patience, "the relay to read the binlog", func() bool {
		if !c.running() {
			c.t.Fatalf("the relay ended with code %d", c.cmd.ProcessState.ExitCode())
		}
		s, err := c.status()
		return err == nil && s.Source.State == "connected"
	})
}

func (c *child) status() (operator.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.client.Status(ctx)
}

func (c *child) running() bool {
	if c.cmd == nil {
		return false
	}
	select {
	case <-c.gone:
		return false
	default:
		return true
	}
}

// wait returns the exit code of a process that ends by itself.
func (c *child) wait() int {
	c.t.Helper()
	testkit.WaitFor(c.t, patience, "the relay to end", func() bool { return !c.running() })
	return c.cmd.ProcessState.ExitCode()
}

// stop ends the process with a signal and returns its exit code.
func (c *child) stop(signal syscall.Signal) int {
	c.t.Helper()
	testkit.Must(c.t, c.cmd.Process.Signal(signal))
	return c.wait()
}

func (c *child) kill() {
	if c.running() {
		_ = c.cmd.Process.Kill() // it may have ended already
		<-c.gone
	}
}

// printed returns the process' standard output and error over all starts.
func (c *child) printed() string {
	data, err := os.ReadFile(c.path("printed"))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// says waits until the process has printed all the parts, in any order.
func (c *child) says(parts ...string) {
	c.t.Helper()
	for _, part := range parts {
		testkit.WaitFor(c.t, patience, fmt.Sprintf("the relay to say %q", part), func() bool { return strings.Contains(c.printed(), part) })
	}
}

// command runs another command of the program and returns what it printed on both streams.
func (c *child) command(args ...string) (printed string, code int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	cmd := c.program(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); cmd.ProcessState == nil {
		c.t.Fatalf("%v: %v", args, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}
