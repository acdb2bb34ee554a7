package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// child is `canal-outbox run` as a separate process, so that it can be killed.
type child struct {
	binary  string
	config  string // path of the configuration file
	log     string // path of the file that collects standard error of all its starts
	address string // of the dashboard
	client  *admin.Client
	// lost is called when the process ends without a signal from here.
	lost func(error)

	mu       sync.Mutex
	process  *testkit.Process // of the last start
	intended bool             // its end is intended
}

const (
	startDeadline = 3 * time.Minute
	stopDeadline  = 2 * time.Minute
	poll          = 20 * time.Millisecond
)

// relayConfig returns the configuration file. The sweep runs more often than by default, because the demo is short.
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

// newChild writes the configuration into dir. Nothing runs yet.
func newChild(binary, dir, source, sink, listen string, lost func(error)) (*child, error) {
	r := &child{
		binary: binary, config: filepath.Join(dir, "canal-outbox.yaml"), log: filepath.Join(dir, "relay.log"), address: listen,
		client: admin.NewClient(filepath.Join(dir, "state", "admin.sock")), lost: lost,
	}
	if err := os.WriteFile(r.config, []byte(relayConfig(dir, source, sink, listen)), 0o600); err != nil {
		return nil, fmt.Errorf("write the relay's configuration: %w", err)
	}
	return r, nil
}

// Start starts the process and returns when it reads the binlog.
func (r *child) Start(ctx context.Context) error {
	process, err := r.launch()
	if err != nil {
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
		case <-process.Exited():
			return errors.New("start the relay: the process ended")
		case <-ctx.Done():
			return fmt.Errorf("start the relay: it does not read the binlog (%s): %w", status.Source.State, errors.Join(ctx.Err(), err))
		}
	}
}

func (r *child) launch() (*testkit.Process, error) {
	cmd := exec.Command(r.binary, "run", "--config", r.config)
	cmd.Env = testkit.RelayEnvironment()
	r.mu.Lock()
	defer r.mu.Unlock()
	process, err := testkit.Launch(cmd, r.log)
	if err != nil {
		return nil, err
	}
	r.process, r.intended = process, false
	go r.wait(process)
	return process, nil
}

func (r *child) wait(process *testkit.Process) {
	<-process.Exited()
	r.mu.Lock()
	intended := r.intended || r.process != process // Start replaces it after an intended end
	r.mu.Unlock()
	if !intended {
		r.lost(fmt.Errorf("the relay ended by itself (%s)", process.State()))
	}
}

// end sends a signal to the process, if there is one, and returns it.
func (r *child) end(sig syscall.Signal) (*testkit.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intended = true
	if r.process == nil {
		return nil, nil
	}
	return r.process, r.process.Signal(sig)
}

// Kill ends the process with SIGKILL and returns when it is gone. Killing a stopped relay does nothing.
func (r *child) Kill() error {
	process, err := r.end(syscall.SIGKILL)
	return errors.Join(err, process.Kill())
}

// Stop ends the process with SIGTERM. A relay that does not end in time, or an end of ctx, is an error.
func (r *child) Stop(ctx context.Context) error {
	process, err := r.end(syscall.SIGTERM)
	if err != nil || process == nil {
		return err
	}
	select {
	case <-process.Exited():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stopDeadline):
		return fmt.Errorf("the relay did not stop within %v of SIGTERM", stopDeadline)
	}
}

// PID returns the process id.
func (r *child) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process.PID()
}

// Status requests the relay's status with a short time-out.
func (r *child) Status(ctx context.Context) (operator.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return r.client.Status(ctx)
}

// Gaps returns the causes of the recorded gaps.
func (r *child) Gaps(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
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
func (r *child) LogTail(lines int) string { return testkit.LogTail(r.log, lines) }
