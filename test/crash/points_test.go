package crash

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// points are those of internal/relay/faultpoints.go, and which of their occurrences is used: the sweep claims once.
var points = []struct {
	name string
	nth  int
}{
	{"after-claim", 1},
	{"after-send", 2},
	{"before-journal", 2},
	{"before-checkpoint", 2},
	{"after-journal", 2},
	{"before-update", 2},
	{"after-update", 2},
}

// atPoints starts a relay for each point, writes the script and calls f while the relay waits there.
func (b *bed) atPoints(t *testing.T, f func(t *testing.T, release func())) {
	for _, p := range points {
		ok := t.Run(p.name, func(t *testing.T) {
			if !b.relay.Running() {
				b.relay.Start(t)
				b.sent(t)
				b.stop(t)
			}
			at := b.relay.StartUntil(t, p.name, p.nth)
			b.relay.AwaitConnected(t) // else all rows come at once, and some points occur only once
			b.script(t)
			b.relay.Await(t, at)
			f(t, func() { at.Release(t) })
		})
		if !ok {
			return
		}
	}
}

// SIGKILL at a point: rows in the journal or SENT in the table are not sent again, and nothing is lost (D02 after a claim, D04
// between broker and journal, D26 between journal and table).
func TestD04_D26_D02_KillAtEachPoint(t *testing.T) {
	beds(t, func(t *testing.T, b *bed) {
		before := b.account(t)
		b.atPoints(t, func(t *testing.T, _ func()) {
			known := b.kill(t)
			account := b.afterKill(t)
			b.onlyUnknown(t, before, account, known)
			t.Logf("%d messages sent again", account.Duplicates()-before.Duplicates())
			before = account
			b.stop(t)
		})
	})
}

// SIGTERM at a point: nothing is sent again after the next start.
func TestP3_TerminateAtEachPoint(t *testing.T) {
	beds(t, func(t *testing.T, b *bed) {
		b.atPoints(t, func(t *testing.T, release func()) {
			b.relay.Terminate(t)
			b.terminating(t)
			release()
			b.terminated(t)
			b.relay.Start(t)
			b.noCopies(t, b.account(t))
			b.stop(t)
		})
	})
}

// All connections to the database break while the relay waits at a point: it continues by itself, and nothing is sent twice.
func TestA05_CutAtEachPoint(t *testing.T) {
	beds(t, func(t *testing.T, b *bed) {
		b.atPoints(t, func(t *testing.T, release func()) {
			b.proxy.Cut()
			release()
			b.noCopies(t, b.account(t))
			b.stop(t)
		})
	})
}

// The broker's answers are held back while the log is read, for longer than the interval of checkpoints. The checkpoint must wait
// for the answers (A03).
func TestA03_CheckpointDoesNotOvertakeTheBroker(t *testing.T) {
	beds(t, func(t *testing.T, b *bed) {
		at := b.relay.StartUntil(t, "after-send", 1)
		b.relay.AwaitConnected(t)
		before := b.account(t)
		b.script(t)
		b.relay.Await(t, at)
		first, err := b.relay.Status()
		testkit.Must(t, err)
		testkit.WaitFor(t, patience, "the relay to read on", func() bool {
			s, err := b.relay.Status()
			return err == nil && s.UptimeSeconds > first.UptimeSeconds+2.5 && s.Positions.Offered.Compare(s.Positions.Server) >= 0
		})
		known := b.kill(t)
		account := b.afterKill(t)
		b.onlyUnknown(t, before, account, known)
		if account.Duplicates()+int(b.relay.Metrics(t).Sum("read_back_found_total")) == 0 {
			t.Error("no message was found or sent again, so the answers were not held back")
		}
	})
}
