package crash

import (
	"flag"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

var failoverCount = flag.Int("failovers", 3, "how often the database of TestFailoversUnderLoad fails over")

// without are the arguments of a MySQL without GTIDs.
var without = []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}

// The database fails over again and again, under load: each time the relays lose the primary while applications still write to it, the replica
// catches up and is promoted, and the old primary becomes its replica. Every third time the active relay is killed in the middle. Nothing is lost
// and nothing is invented, and only a take-over by the other relay, which lacks the journal of the first, makes copies. With GTIDs there is no gap;
// without them each failover is one, of cause failover.
func TestFailoversUnderLoad(t *testing.T) {
	relay.Long(t)
	for _, c := range []struct {
		name   string
		flavor testkit.Flavor
		args   []string
	}{
		{"mysql", testkit.MySQL, nil},
		{"mysql without GTIDs", testkit.MySQL, without},
		{"mariadb", testkit.MariaDB, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			options := testkit.DatabaseOptions{Flavor: c.flavor, Args: c.args}
			primary, replica := testkit.NewDatabase(t, options), testkit.NewDatabase(t, options)
			testkit.Must(t, replica.ReplicateFrom(t.Context(), primary))
			g := newGroup(t, primary, 2, full...)
			stop := g.write(t)
			g.more(t)
			g.positioned(t)
			stop()
			copies, takeOvers := 0, 0
			for n := range *failoverCount {
				active := g.taken(t, -1)
				replica = g.failOver(t, replica, n%3 == 2)
				before := copies
				copies = g.account(t)[0].Duplicates()
				if g.taken(t, -1) != active {
					takeOvers++
				} else if n%3 != 2 && copies > before {
					t.Errorf("%d copies though the same relay was active before and after", copies-before)
				}
				if t.Failed() {
					t.Fatalf("failover %d", n)
				}
			}
			rows := g.loads[0].Ledger.Len()
			var version string
			testkit.Must(t, g.db.Root().QueryRow("SELECT VERSION()").Scan(&version))
			t.Logf("%s: %d failovers, %d take-overs, %d rows, %d copies", version, *failoverCount, takeOvers, rows, copies)
			g.wantFailoverGaps(t, c.args == nil)
			for _, r := range g.relays {
				r.Stop(t)
			}
		})
	}
}

// failOver makes the replica the primary, and returns the old primary as its replica.
func (g *group) failOver(t *testing.T, replica *testkit.Database, kill bool) *testkit.Database {
	t.Helper()
	old, active := g.db, g.taken(t, -1)
	stop := g.write(t)
	g.more(t)
	if kill {
		g.relays[active].Kill()
	}
	g.cutOff(t)
	for _, load := range g.loads {
		missed := load.Ledger.Len() + 20
		testkit.WaitFor(t, patience, "rows that no relay publishes", func() bool { return load.Ledger.Len() >= missed })
	}
	stop()
	testkit.Must(t, replica.CatchUp(t.Context(), old))
	testkit.Must(t, replica.Promote(t.Context()))
	testkit.Must(t, old.Rejoin(t.Context(), replica)) // before the first write to the new primary
	g.promote(t, replica)
	if kill {
		g.relays[active].Launch(t)
	}
	g.taken(t, -1)
	return old
}

// wantFailoverGaps checks that failovers with GTIDs made no gaps, and that those without made no others.
func (g *group) wantFailoverGaps(t *testing.T, gtids bool) {
	t.Helper()
	failovers := 0
	for _, r := range g.relays {
		gaps, err := r.Client().Gaps(t.Context())
		testkit.Must(t, err)
		for _, gap := range gaps {
			switch gap.Cause {
			case outbox.GapFirstStart:
			case outbox.GapFailover:
				failovers++
			default:
				t.Errorf("a gap of cause %v", gap.Cause)
			}
		}
	}
	if gtids && failovers > 0 || !gtids && failovers == 0 {
		t.Errorf("%d gaps of cause failover", failovers)
	}
}
