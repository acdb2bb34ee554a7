package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/admin"
)

// relay is `canal-outbox run` as a process of its own, so that it can be killed.
type relay struct {
	binary  string // this program
	config  string // path of the configuration file
	log     string // path of the file that collects standard error of all its starts
	address string // of the dashboard
	client  *admin.Client
	// lost is told when the process ends without having been told to.
	lost func(error)

	mu       sync.Mutex
	cmd      *exec.Cmd
	gone     chan struct{} // closed when the process of cmd has been waited for
	intended bool          // its end is our doing
}

const (
	startDeadline = 60 * time.Second
	stopDeadline  = 30 * time.Second
	poll          = 20 * time.Millisecond
)

// relayConfig is the configuration file. The sweep looks more often than by default, because the demo is short.
func relayConfig(dir, source, sink, listen string) string {
	return fmt.Sprintf(`source: {address: %q, user: %q, password: %q}
tables:
  - {name: %q, preset: %q}
sink: %s
checkpoint: {dir: %q}
fallback: {interval: 5s, threshold: 10s, patience: 3s}
admin: {listen: %q}
log: {format: text}
`, source, relayUser, relayPassword, tableName, presetName, sink, filepath.Join(dir, "state"), listen)
}

// newRelay writes the configuration into dir. Nothing runs yet.
func newRelay(dir, source, sink, listen string, lost func(error)) (*relay, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start the relay with: %w", err)
	}
	r := &relay{
		binary: binary, config: filepath.Join(dir, "canal-outbox.yaml"), log: filepath.Join(dir, "relay.log"), address: listen,
		client: admin.NewClient(filepath.Join(dir, "state", "admin.sock")), lost: lost,
	}
	if err := os.WriteFile(r.config, []byte(relayConfig(dir, source, sink, listen)), 0o600); err != nil {
		return nil, fmt.Errorf("write the relay's configuration: %w", err)
	}
	return r, nil
}

// Start starts the process and returns when it reads the binlog.
func (r *relay) Start(ctx context.Context) error {
	if err := r.launch(); err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	for {
		status, err := r.Status(ctx)
		if err == nil && status.Source.State == "connected" {
			return nil
		}
		select {
		case <-time.After(poll):
		case <-r.gone:
			return errors.New("start the relay: the process ended")
		case <-ctx.Done():
			return fmt.Errorf("start the relay: it does not read the binlog (%s): %w", status.Source.State, errors.Join(ctx.Err(), err))
		}
	}
}

func (r *relay) launch() error {
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(r.binary, "run", "--config", r.config)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, foreignEnvironment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C at the terminal is for the demo, which then stops the relay
	bindToParent(cmd.SysProcAttr)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	r.cmd, r.gone, r.intended = cmd, make(chan struct{}), false
	go r.wait(cmd, r.gone)
	return nil
}

// foreignEnvironment leaves out what would override the demo's configuration.
func foreignEnvironment(environ []string) []string {
	var kept []string
	for _, v := range environ {
		if !strings.HasPrefix(v, "CANAL_OUTBOX_") {
			kept = append(kept, v)
		}
	}
	return kept
}

func (r *relay) wait(cmd *exec.Cmd, gone chan struct{}) {
	_ = cmd.Wait() // how it ended is in ProcessState
	r.mu.Lock()
	intended := r.intended
	r.mu.Unlock()
	close(gone)
	if !intended {
		r.lost(fmt.Errorf("the relay ended by itself (%s)", cmd.ProcessState))
	}
}

// signal sends a signal that ends the process. The channel is closed when it has ended.
func (r *relay) signal(sig syscall.Signal) (<-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		closed := make(chan struct{})
		close(closed)
		return closed, nil
	}
	r.intended = true
	if err := r.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return r.gone, fmt.Errorf("send %v to the relay: %w", sig, err)
	}
	return r.gone, nil
}

// Kill ends the process with SIGKILL and returns when it is gone. Killing a stopped relay does nothing.
func (r *relay) Kill() error {
	gone, err := r.signal(syscall.SIGKILL)
	if err == nil {
		<-gone
	}
	return err
}

// Stop ends the process with SIGTERM. A relay that does not end in time, or an end of ctx, is an error.
func (r *relay) Stop(ctx context.Context) error {
	gone, err := r.signal(syscall.SIGTERM)
	if err != nil {
		return err
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stopDeadline):
		return fmt.Errorf("the relay did not stop within %v of SIGTERM", stopDeadline)
	}
}

// PID returns the process id.
func (r *relay) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cmd.Process.Pid
}

// Status asks the relay how it is; it does not wait long for the answer.
func (r *relay) Status(ctx context.Context) (admin.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return r.client.Status(ctx)
}

// Gaps returns the causes of the recorded gaps.
func (r *relay) Gaps(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	gaps, err := r.client.Gaps(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the relay for its gaps: %w", err)
	}
	causes := make([]string, len(gaps))
	for i, gap := range gaps {
		causes[i] = string(gap.Cause)
	}
	return causes, nil
}

// LogTail returns the last lines of the log.
func (r *relay) LogTail(lines int) string {
	data, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
