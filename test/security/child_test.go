package security

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// patience is how long a test waits for a condition, on a machine with other work.
const patience = 3 * time.Minute

// child is one configuration and state directory with, at times, a running process. Its log has what the process printed, on both
// streams and over all its starts.
type child struct {
	*relay.Relay
	t testing.TB
}

// newChild writes a configuration. Nothing runs yet.
func newChild(t testing.TB, yaml string, env ...string) *child {
	t.Helper()
	c := &child{relay.New(t, relay.Options{YAML: whole(yaml)}), t}
	c.Env = env
	return c
}

// whole leaves the form of the log to the relay.
func whole(yaml string) string {
	if strings.Contains(yaml, "\nlog:") {
		return yaml
	}
	return yaml + "\nlog: {}"
}

// configure replaces the configuration.
func (c *child) configure(yaml string) { c.Configure(c.t, relay.Options{YAML: whole(yaml)}) }

// wait returns the exit code of a process that ends by itself.
func (c *child) wait() int { c.t.Helper(); return c.Wait(c.t) }

// stop ends the process with a signal and returns its exit code.
func (c *child) stop(signal syscall.Signal) int {
	c.t.Helper()
	c.Signal(c.t, signal)
	return c.wait()
}

// printed returns the process' standard output and error over all starts.
func (c *child) printed() string { c.t.Helper(); return c.Log(c.t) }

// says waits until the process has printed all the parts, in any order.
func (c *child) says(parts ...string) {
	c.t.Helper()
	for _, part := range parts {
		testkit.WaitFor(c.t, patience, fmt.Sprintf("the relay to say %q", part), func() bool { return strings.Contains(c.printed(), part) })
	}
}

// fails starts the process, and checks that it ends with code 1 and a reason.
func (c *child) fails(what, reason string) {
	c.t.Helper()
	c.Launch(c.t)
	if code := c.wait(); code != 1 || !strings.Contains(c.printed(), reason) {
		c.t.Errorf("%s: code %d, want 1 and that it says %q:\n%s", what, code, reason, c.printed())
	}
}

// command runs another command of the program and returns what it printed on both streams.
func (c *child) command(args ...string) (printed string, code int) {
	c.t.Helper()
	out, errOut, code := c.Command(c.t, args...)
	return out + errOut, code
}

// doctorSays checks that doctor finds a fault and names it.
func (c *child) doctorSays(fault string) (printed string) {
	c.t.Helper()
	printed, code := c.command("doctor")
	if code != 1 || !strings.Contains(printed, fault) {
		c.t.Errorf("doctor: code %d, it does not say %q:\n%s", code, fault, printed)
	}
	return printed
}
