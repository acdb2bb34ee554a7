package e2e

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// child is the built program on the lab's table and broker, in place of the relay in this process.
func (l *lab) child() *relay.Relay {
	l.t.Helper()
	return relay.New(l.t, relay.Options{
		Source: l.source,
		Sink:   fmt.Sprintf("kafka: {brokers: [%q]}", l.kafka.ListenAddrs()[0]),
		Tables: []*relay.Table{{DB: l.sql, Schema: l.schema, Preset: "t_local_message"}},
	})
}

// A09: what an operator sees of it: exit code 3 and the two ways out, the preview of a move, and the gap afterwards.
func TestA09_OperatorMeetsAnotherServer(t *testing.T) {
	t.Parallel()
	l := newLab(t, testkit.SharedMySQL(t))
	proxy := l.through()
	r := l.child()
	r.Start(t)
	l.commit("before")
	l.sent()
	r.Stop(t)
	before := r.State(t)
	l.twin(testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MySQL}))
	l.commit("open")
	proxy.SetTarget(l.db.Addr())
	untouched := l.tampered()
	_, refusal, code := r.Command(t, "run")
	if code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	contains(t, refusal, "--accept-new-source", "checkpoint set", "nothing was published or written")
	if now := l.tampered(); now != untouched {
		t.Errorf("a refused server was written to: %s, then %s", untouched, now)
	}
	if after := r.State(t); after.Checkpoint != before.Checkpoint || len(after.Gaps) != len(before.Gaps) {
		t.Errorf("the state was changed: %+v", after)
	}

	out, errOut, code := r.Command(t, "checkpoint", "set", "--latest")
	if code == 0 {
		t.Errorf("a move without --yes was done by a script: %s%s", out, errOut)
	}
	contains(t, out+errOut, "--yes")
	out, errOut, code = r.Command(t, "checkpoint", "set", "--latest", "--yes")
	if code != 0 {
		t.Fatalf("checkpoint set: code %d, %s%s", code, out, errOut)
	}
	t.Logf("the preview:\n%s%s", out, errOut)
	contains(t, out+errOut, "from now on it is of", "gap")
	r.Start(t)
	l.sent()
	l.compare("before", "open")
	out, _, code = r.Command(t, "gaps", "list")
	if code != 0 || !strings.Contains(out, "operator") {
		t.Errorf("gaps list: code %d, %s", code, out)
	}
	r.Stop(t)
}

// A terminal that closes sends SIGHUP, once by the kernel and once by the shell: the relay ends in order, and repeats nothing.
func TestATerminalThatCloses(t *testing.T) {
	t.Parallel()
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP) // so that the relay does not inherit that it is ignored, where the tests run with nohup
	defer signal.Stop(handled)
	l := newLab(t, testkit.SharedMySQL(t))
	r := l.child()
	r.Start(t)
	var keys []string
	for i := range 200 {
		keys = append(keys, fmt.Sprintf("k%d", i))
		l.commit(keys[i])
	}
	r.Signal(t, syscall.SIGHUP)
	_ = syscall.Kill(r.PID(), syscall.SIGHUP) // a quick relay may have ended
	if code := r.Wait(t); code != 0 {
		t.Fatalf("the relay ended with code %d after SIGHUP:\n%s", code, r.LogTail(30))
	}
	r.Start(t)
	l.sent()
	r.Stop(t)
	l.compare(keys...)
}

func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in:\n%s", word, text)
		}
	}
}
