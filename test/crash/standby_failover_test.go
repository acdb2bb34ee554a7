package crash

import (
	"maps"
	"slices"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// newReplicated returns two relays of a table with a status and one without, on a server with a replica.
func newReplicated(t *testing.T, flavor testkit.Flavor) (g *group, replica *testkit.Database) {
	t.Helper()
	primary := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
	replica = testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
	testkit.Must(t, replica.ReplicateFrom(t.Context(), primary))
	g = newGroup(t, primary, 2, nil, layouts.LogOnly()[1])
	stop := g.write(t)
	g.more(t)
	g.positioned(t)
	stop()
	return g, replica
}

// cutOff disconnects the relays from the primary.
func (g *group) cutOff(t *testing.T) {
	t.Helper()
	for _, p := range g.proxies {
		testkit.Must(t, p.Refuse(true))
		p.Cut()
	}
}

// promote makes the replica the server of relays and applications.
func (g *group) promote(t *testing.T, replica *testkit.Database) {
	t.Helper()
	testkit.Must(t, replica.Promote(t.Context()))
	g.db = replica
	for _, load := range g.loads {
		load.Table.DB = replica.Connect(t, load.Table.Schema)
	}
	for _, p := range g.proxies {
		p.SetTarget(replica.Addr())
		testkit.Must(t, p.Refuse(false))
	}
}

// goesOn writes more rows, and checks that the log delivers all of them: the failover is no gap.
func (g *group) goesOn(t *testing.T) {
	t.Helper()
	stop := g.write(t)
	g.more(t)
	stop()
	g.account(t)
	active := g.taken(t, -1)
	gaps, err := g.relays[active].Client().Gaps(t.Context())
	testkit.Must(t, err)
	for _, gap := range gaps {
		if gap.Cause != outbox.GapFirstStart && gap.Cause != outbox.GapOperator {
			t.Errorf("a failover of the database has made a gap: %+v", gap)
		}
	}
	for _, r := range g.relays {
		if r.Running() {
			r.Stop(t)
		}
	}
}

// failovers are the ways a database fails over. Each ends with an active relay on the new server.
var failovers = map[string]func(t *testing.T, g *group, replica *testkit.Database){
	"both live": func(t *testing.T, g *group, replica *testkit.Database) {
		g.cutOff(t)
		testkit.Must(t, replica.CatchUp(t.Context(), g.db))
		g.promote(t, replica)
		g.taken(t, -1)
	},
	"the active one dies": func(t *testing.T, g *group, replica *testkit.Database) {
		stop := g.write(t)
		g.more(t)
		g.relays[0].Kill() // in the middle: some rows are published and not SENT, some neither
		g.cutOff(t)
		for _, load := range g.loads {
			missed := load.Ledger.Len() + 20
			testkit.WaitFor(t, patience, "rows that no relay publishes", func() bool { return load.Ledger.Len() >= missed })
		}
		stop()
		testkit.Must(t, replica.CatchUp(t.Context(), g.db))
		g.promote(t, replica)
		g.taken(t, 0)
	},
	"the new server lacks transactions": func(t *testing.T, g *group, replica *testkit.Database) {
		g.account(t)
		testkit.Must(t, replica.CatchUp(t.Context(), g.db))
		testkit.Must(t, replica.Promote(t.Context())) // it gets no transactions after this
		end := relay.LogEnd(t, g.db.Root())
		testkit.WaitFor(t, patience, "the active relay to see more than the replica has", func() bool { return g.leased(t).Compare(end) > 0 })
		g.cutOff(t)
		g.promote(t, replica)
		if code := g.relays[0].Wait(t); code != 3 {
			t.Errorf("exit code %d of a relay whose new server lacks what it has seen, want 3", code)
		}
		if code := g.relays[1].Wait(t); code != 3 {
			t.Errorf("exit code %d of a standby whose new server lacks what the active relay has seen, want 3", code)
		}
		g.relays[1].Launch(t, "--accept-new-source") // an operator decides
		g.taken(t, 0)
	},
}

// The database fails over while one relay is active and another is the standby. The lease moves along: one of them is active on the
// new server, whether the active one survives or dies with the old server. The new server delivers the rows that were not
// published, also those of the table without a status. If the new server lacks what the active one has seen, both refuse it until
// an operator accepts it.
func TestFailoverOfTheDatabaseUnderActiveAndStandby(t *testing.T) {
	flavors, ways := []testkit.Flavor{testkit.MariaDB}, []string{"the active one dies"}
	if *long {
		flavors = append(flavors, testkit.MySQL, testkit.MariaDB118)
		ways = slices.Sorted(maps.Keys(failovers))
	}
	for _, flavor := range flavors {
		for _, way := range ways {
			t.Run(string(flavor)+" "+way, func(t *testing.T) {
				t.Parallel()
				g, replica := newReplicated(t, flavor)
				failovers[way](t, g, replica)
				g.goesOn(t)
			})
		}
	}
}
