package story

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// restart kills a process of the chain and starts it again.
func (s *story) restart(ctx context.Context, name string, away time.Duration) error {
	if err := s.parts[name].End(syscall.SIGKILL); err != nil {
		return err
	}
	if err := relay.Pause(ctx, away); err != nil {
		return err
	}
	return s.parts[name].Start()
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
		s.parts[name] = &relay.Child{Name: name, Command: command, Log: filepath.Join(s.dir, name+".log"), Lost: s.fail}
	}
	own := append([]string{s.opts.Orders}, s.flags()...)
	s.relay = relay.NewChild(s.opts.Relay, s.dir, s.fail)
	s.parts["relay"] = s.relay.Child
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
