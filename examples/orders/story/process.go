package story

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// part is one process of the chain: it can be killed and started again.
type part struct {
	name    string
	command []string
	log     string
	lost    func(error) // called when the process ends without a signal from here

	mu      sync.Mutex
	process *testkit.Process
	ended   bool // on purpose
}

// Start starts the process.
func (p *part) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Env = testkit.RelayEnvironment()
	process, err := testkit.Launch(cmd, p.log)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.process, p.ended = process, false
	go func() {
		<-process.Exited()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.process == process && !p.ended {
			p.lost(fmt.Errorf("%s ended by itself (%s); its last lines:\n%s", p.name, process.State(), testkit.LogTail(p.log, 20)))
		}
	}()
	return nil
}

// End sends a signal that ends the process, and waits for that.
func (p *part) End(sig syscall.Signal) error {
	p.mu.Lock()
	p.ended = true
	process := p.process
	p.mu.Unlock()
	if process == nil {
		return nil
	}
	if err := process.Signal(sig); err != nil {
		return err
	}
	select {
	case <-process.Exited():
		return nil
	case <-time.After(30 * time.Second):
		return errors.Join(fmt.Errorf("%s did not end within 30s of %v", p.name, sig), process.Kill())
	}
}

// Restart kills the process and starts it again.
func (p *part) Restart(ctx context.Context, away time.Duration) error {
	if err := p.End(syscall.SIGKILL); err != nil {
		return err
	}
	if err := pause(ctx, away); err != nil {
		return err
	}
	return p.Start()
}

// consumerNames are the processes other than shop, check and relay.
var consumerNames = []string{"stock", "points", "coupon", "notification", "timeout", "letters"}

// flags returns the flags of the shop's parts.
func (s *story) flags() []string {
	return slices.Concat(s.servers.broker.flags, []string{
		"-dsn", s.servers.database.DSN("root", "", schema) + "&interpolateParams=true", "-redis", s.servers.redis.Addr(),
		"-pay-within", s.opts.PayWithin.String(), "-rate", fmt.Sprint(s.opts.Rate),
	})
}

// makeParts describes the processes; nothing runs yet.
func (s *story) makeParts() {
	add := func(name string, command ...string) {
		s.parts[name] = &part{name: name, command: command, log: filepath.Join(s.dir, name+".log"), lost: s.fail}
	}
	own := append([]string{s.opts.Orders}, s.flags()...)
	add("relay", s.opts.Relay, "run", "--config", s.config())
	add("shop", append(slices.Clone(own), "shop")...)
	add("check", append(slices.Clone(own), "-check-every", "3s", "-abandoned", "8s", "-webhook", s.alerts.URL, "check")...)
	for _, name := range consumerNames {
		add(name, append(slices.Clone(own), "consume", name)...)
	}
}

// relayConfig returns the relay's configuration. The sweep runs more often than by default, because the run is short.
func (s *story) relayConfig() string {
	return fmt.Sprintf(`source: {address: %q, user: %q, password: %q}
tables:
  - {name: shop.t_local_message, preset: order-chain}
sink: %s
checkpoint: {dir: %q}
fallback: {interval: 2s, threshold: 5s, patience: 3s}
alerts: {webhook: %q}
admin: {listen: ""}
lease: {enabled: false} # there is one relay
log: {format: text}
`, s.servers.database.Addr(), relayUser, relayPassword, s.servers.broker.sink, filepath.Join(s.dir, "state"), s.alerts.URL)
}

// awaitRelay returns when the relay reads the binlog.
func (s *story) awaitRelay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		status, err := admin.NewClient(filepath.Join(s.dir, "state", "admin.sock")).Status(ctx)
		if err == nil && status.Source.State == "connected" {
			return nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("the relay does not read the binlog: %w; its last lines:\n%s", errors.Join(context.Cause(ctx), err),
				testkit.LogTail(s.parts["relay"].log, 20))
		}
	}
}

// config is the file with the relay's configuration.
func (s *story) config() string { return filepath.Join(s.dir, "canal-outbox.yaml") }

// order runs a command of the shop's operator.
func (s *story) order(ctx context.Context, args ...string) (string, error) {
	return s.output(ctx, s.opts.Orders, append(s.flags(), args...)...)
}

// output runs a command and returns what it prints.
func (s *story) output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = testkit.RelayEnvironment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w\n%s", filepath.Base(program), args, err, out)
	}
	return string(out), nil
}
