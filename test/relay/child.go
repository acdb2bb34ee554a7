package relay

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// Child is a program next to its caller, for examples, which have no test: it can be killed and started again. Lost is called when
// the process ends and the caller has not ended it. Its methods may be called from many goroutines.
type Child struct {
	Name    string
	Command []string
	Log     string // file that collects the output of all its starts
	Lost    func(error)

	mu      sync.Mutex
	process *testkit.Process // of the last start
	ended   bool             // on purpose
}

// Start starts the process.
func (c *Child) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.Env = testkit.RelayEnvironment()
	process, err := testkit.Launch(cmd, c.Log)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	c.process, c.ended = process, false
	go c.watch(process)
	return nil
}

func (c *Child) watch(process *testkit.Process) {
	<-process.Exited()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == process && !c.ended {
		c.Lost(fmt.Errorf("%s ended by itself (%s); its last lines:\n%s", c.Name, process.State(), c.LogTail(20)))
	}
}

// End sends a signal that ends the process, if there is one, and returns when it is gone. A process that does not end in time is
// killed, and that is an error.
func (c *Child) End(sig syscall.Signal) error {
	c.mu.Lock()
	c.ended = true
	process := c.process
	c.mu.Unlock()
	if process == nil {
		return nil
	}
	if err := process.Signal(sig); err != nil {
		return err
	}
	select {
	case <-process.Exited():
		return nil
	case <-time.After(stopDeadline):
		return errors.Join(fmt.Errorf("%s did not end within %v of %v", c.Name, stopDeadline, sig), process.Kill())
	}
}

// PID is the id of the last process.
func (c *Child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process.PID()
}

// LogTail returns the last lines of the log.
func (c *Child) LogTail(lines int) string { return testkit.LogTail(c.Log, lines) }

// RelayChild is a Child that runs the relay.
type RelayChild struct {
	*Child
	Config string
	Client *admin.Client
}

// NewChild describes a relay whose configuration and log are in dir; its state directory is dir/state.
func NewChild(program, dir string, lost func(error)) RelayChild {
	config := filepath.Join(dir, "canal-outbox.yaml")
	return RelayChild{
		Child: &Child{
			Name: "the relay", Command: []string{program, "run", "--config", config}, Log: filepath.Join(dir, "relay.log"), Lost: lost,
		},
		Config: config, Client: admin.NewClient(filepath.Join(dir, "state", "admin.sock")),
	}
}

// Start starts the process and returns when it reads the binlog.
func (c RelayChild) Start(ctx context.Context) error {
	if err := c.Child.Start(); err != nil {
		return err
	}
	c.mu.Lock()
	exited := c.process.Exited()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	for {
		status, err := c.Client.Status(ctx)
		if err == nil && status.Source.State == "connected" {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-exited:
			return errors.New("start the relay: the process ended")
		case <-ctx.Done():
			return fmt.Errorf("start the relay: it does not read the binlog (%s): %w", status.Source.State, errors.Join(context.Cause(ctx), err))
		}
	}
}

// Gaps counts the recorded gaps by cause.
func (c RelayChild) Gaps(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	gaps, err := c.Client.Gaps(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the relay for its gaps: %w", err)
	}
	causes := map[string]int{}
	for _, gap := range gaps {
		causes[string(gap.Cause)]++
	}
	return causes, nil
}

// Pause waits, or returns the reason for which ctx has ended.
func Pause(ctx context.Context, d time.Duration) error {
	outbox.Wait(ctx, d, nil)
	return context.Cause(ctx)
}
