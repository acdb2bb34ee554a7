package crash

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// before is the newest commit of 2026-11-23: state directories and lease rows of its build are read from 0.1 on (docs/compatibility.md).
const before = "2693c7877cae"

// older builds the program of that commit.
func older(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "canal-outbox")
	err := relay.BuildCommit("../..", before, program)
	if errors.Is(err, relay.ErrNoCommit) {
		t.Skipf("a shallow clone has no commit %s: git fetch --unshallow", before)
	}
	testkit.Must(t, err)
	return program
}

// upgradeKill is what was known, and how often each message had been published, when a process was killed.
type upgradeKill struct {
	known     map[string]bool
	published map[string]int
}

// published returns how often each message is in the topics.
func (b *bed) published(t *testing.T) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, r := range relay.ReadAll(t, b.broker, b.load.Topics...) {
		count[r.MessageID]++
	}
	return count
}

// Two builds run alternately on one state directory and are killed under load each time: nothing is lost, and what was in the journal or SENT in the
// table at a kill is not sent again.
func TestUpgradeAndBack(t *testing.T) {
	relay.Long(t)
	program := older(t)
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, flavor, nil, "")
			var kills []upgradeKill
			for n, build := range []string{program, "", program, ""} {
				b.relay.Program = build
				b.relay.Start(t)
				b.relay.AwaitConnected(t)
				b.load.Run(t, 400+37*n, 3)
				if n%2 == 0 {
					testkit.WaitFor(t, patience, "half of the rows to be SENT", func() bool { return b.table.Count(t, b.table.Sent())*2 > b.load.Ledger.Len() })
				}
				known := b.kill(t)
				kills = append(kills, upgradeKill{known, b.published(t)})
			}
			b.relay.Start(t)
			account := b.account(t)
			t.Logf("%d rows, %d copies after 4 kills", b.load.Ledger.Len(), account.Duplicates())
			end := b.published(t)
			for n, k := range kills {
				for id := range k.known {
					if end[id] > k.published[id] {
						t.Errorf("%s was sent %d more times, and it was known at kill %d", id, end[id]-k.published[id], n+1)
					}
				}
			}
			gaps, err := b.relay.Client().Gaps(t.Context())
			testkit.Must(t, err)
			for _, gap := range gaps {
				if gap.Cause != outbox.GapFirstStart {
					t.Errorf("a gap: %+v", gap)
				}
			}
			b.stop(t)
		})
	}
}

// A rolling change of an active relay and its standby, forth and back, under load, with a kill of the active one each time.
func TestRollingUpgradeAndBack(t *testing.T) {
	relay.Long(t)
	program := older(t)
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, testkit.SharedDatabase(t, flavor), 2, full...)
			stop := g.write(t)
			g.positioned(t)
			active := 0
			for _, build := range []string{program, "", program} {
				standby := 1 - active
				g.relays[standby].Stop(t)
				g.relays[standby].Program = build
				g.relays[standby].Launch(t)
				g.awaitState(t, g.relays[standby], "standby")
				g.more(t)
				g.relays[active].Kill()
				g.awaitState(t, g.relays[standby], "active")
				g.more(t)
				g.relays[active].Program = build
				g.relays[active].Launch(t)
				g.awaitState(t, g.relays[active], "standby")
				active = standby
			}
			stop()
			g.account(t)
		})
	}
}
