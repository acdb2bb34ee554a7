package crash

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// leaseTime is short, so that a take-over does not delay the test. No assertion depends on its duration. It is not shorter, so
// that a relay on a busy machine keeps its lease where the test does not take it away.
const leaseTime = "lease: {time: 3s}"

// group is several relays of the same tables, as on several machines: each has its own state directory and connection to the
// database.
type group struct {
	db      *testkit.Database
	broker  relay.Broker
	loads   []*relay.Load // of one table each
	relays  []*relay.Relay
	proxies []*testkit.Proxy
	frozen  *relay.Relay
}

// full is the table that has every column.
var full = []*layouts.Layout{nil}

// newGroup creates the tables of some layouts, and n relays that serve all of them; nil is the table that has every column.
func newGroup(t *testing.T, db *testkit.Database, n int, all ...*layouts.Layout) *group {
	t.Helper()
	return newGroupOn(t, newBroker(t), db, n, all...)
}

func newGroupOn(t *testing.T, b relay.Broker, db *testkit.Database, n int, all ...*layouts.Layout) *group {
	t.Helper()
	return newGroupWith(t, leaseTime, topic, b, db, n, all...)
}

// newGroupWith is newGroupOn with more of the configuration, and with the topic of the n-th table.
func newGroupWith(t *testing.T, extra string, topic func(n int) string, b relay.Broker, db *testkit.Database, n int, all ...*layouts.Layout) *group {
	t.Helper()
	g := &group{db: db, broker: b}
	var tables []*relay.Table
	for i, layout := range all {
		schema := db.CreateSchema(t)
		pool := db.Connect(t, schema)
		tables = append(tables, relay.NewLayout(t, pool, schema, layout))
		g.loads = append(g.loads, relay.NewLoad(t, tables[i], b.TakesEmpty(), topic(i)))
	}
	tables[0].NewLease(t)
	for i := range n {
		g.proxies = append(g.proxies, testkit.NewProxy(t, db.Addr()))
		g.relays = append(g.relays, relay.New(t, relay.Options{
			Source: g.proxies[i].Addr(), User: "user: root, tls: {mode: disabled}", Tables: tables, Sink: g.broker.Sink(), Extra: extra,
		}))
	}
	for i, r := range g.relays {
		r.Launch(t)
		if i == 0 {
			g.awaitState(t, r, "active")
		}
	}
	for _, r := range g.relays[1:] {
		g.awaitState(t, r, "standby")
	}
	return g
}

// write has applications write to every table until the function that it returns is called.
func (g *group) write(t *testing.T) (stop func()) {
	t.Helper()
	var stops []func()
	for _, load := range g.loads {
		writers := 2
		if load.Table.Layout != nil { // several writers write the rows of a key there, so two of them have no order
			writers = 1
		}
		stops = append(stops, load.StartPaced(t, writers, time.Duration(len(g.loads))*10*time.Millisecond))
	}
	return func() {
		t.Helper()
		for _, stop := range stops {
			stop()
		}
	}
}

// state is a relay's state of the lease; "" when it does not answer.
func state(r *relay.Relay) string {
	s, err := r.Status()
	if err != nil {
		return ""
	}
	return s.Lease.State
}

func (g *group) awaitState(t *testing.T, r *relay.Relay, want string) {
	t.Helper()
	testkit.WaitFor(t, patience, "the relay in "+r.StateDir()+" to be "+want, func() bool {
		if !r.Running() {
			t.Fatalf("the relay ended:\n%s", r.LogTail(20))
		}
		return state(r) == want
	})
}

// taken waits until another relay than i is active, any for -1, and returns which.
func (g *group) taken(t *testing.T, i int) (next int) {
	t.Helper()
	testkit.WaitFor(t, patience, "another relay to be active", func() bool {
		next = slices.IndexFunc(g.relays, func(r *relay.Relay) bool {
			return (i < 0 || r != g.relays[i]) && r != g.frozen && r.Running() && state(r) == "active"
		})
		return next >= 0
	})
	return next
}

// more waits until rows of every table that were written after now are published.
func (g *group) more(t *testing.T) {
	t.Helper()
	for _, load := range g.loads {
		want := load.Ledger.Len() + 20
		testkit.WaitFor(t, patience, "more rows of "+load.Table.FullName()+" to be SENT", func() bool { return g.published(t, load) >= want })
	}
}

// published returns how many rows the table shows as SENT or, without a status, the broker has.
func (g *group) published(t *testing.T, load *relay.Load) int {
	t.Helper()
	if !load.Table.LogOnly() {
		return load.Table.Count(t, load.Table.Sent())
	}
	return len(g.received(t, load))
}

// received are the message ids that the broker has of a load.
func (g *group) received(t *testing.T, load *relay.Load) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, r := range relay.ReadAll(t, g.broker, load.Ledger.Topics()...) {
		known[r.MessageID] = true
	}
	return known
}

// account waits until all is published, and checks everything except copies.
func (g *group) account(t *testing.T) (all []relay.Account) {
	t.Helper()
	for _, load := range g.loads {
		want := load.Ledger.Len()
		g.wholly(t, load, want)
		account := load.Ledger.Compare(relay.ReadAll(t, g.broker, load.Ledger.Topics()...))
		if g.db.Before(8, 0) && !load.Table.LogOnly() {
			// A relay that takes over for the first time has no columns of the table for positions before its own start, and the log of such a
			// server does not name them: the sweep publishes those rows, by their keys.
			account.Disorder = nil
		}
		account.Check(t)
		all = append(all, account)
		t.Logf("%s: %d rows, %d copies", load.Table.Preset, want, account.Duplicates())
	}
	g.unmixed(t)
	for _, r := range g.relays {
		if strings.Contains(r.Log(t), "published twice") {
			t.Error("a relay says that messages are published twice")
		}
	}
	return all
}

// wholly waits until all rows are published, and names the rows that are not.
func (g *group) wholly(t *testing.T, load *relay.Load, want int) {
	t.Helper()
	defer func() {
		if t.Failed() && !load.Table.LogOnly() {
			rows, err := server.Show(context.Background(), load.Table.DB, "SELECT t.*, NOW(3) FROM "+load.Table.Name()+" AS t WHERE NOT ("+load.Table.Sent()+") LIMIT 10")
			t.Log(rows, err)
		}
	}()
	testkit.WaitFor(t, patience, "all rows of "+load.Table.FullName()+" to be SENT", func() bool { return g.published(t, load) >= want })
}

// positioned waits until the lease has the position of the first start: a relay that takes over before that would make its own
// first start.
func (g *group) positioned(t *testing.T) {
	t.Helper()
	testkit.WaitFor(t, patience, "a position in the lease", func() bool {
		var n int
		testkit.Must(t, g.loads[0].Table.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM canal_outbox_lease WHERE log_file <> ''").Scan(&n))
		return n == 1
	})
}

// unmixed checks that no two relays published at the same time: the producer of a partition's records changes only when the lease
// moves, so none comes back. A relay that is active again after another one is a new producer then.
func (g *group) unmixed(t *testing.T) {
	t.Helper()
	for _, late := range g.late(t) {
		t.Errorf("a relay published after another one had taken over: %+v", late)
	}
}

// late are the records of producers that come back after another one.
func (g *group) late(t *testing.T) (all []relay.Record) {
	t.Helper()
	for _, load := range g.loads {
		runs := map[string][]string{}
		for _, r := range relay.ReadAll(t, g.broker, load.Ledger.Topics()...) {
			partition := fmt.Sprint(r.Topic, r.Partition)
			of := runs[partition]
			switch i := slices.Index(of, r.Producer); {
			case i < 0:
				runs[partition] = append(of, r.Producer)
			case i < len(of)-1:
				all = append(all, r)
			}
		}
	}
	return all
}

// faults of the active relay: each makes another one active, and a relay that comes back stands by. They return which is active
// then.
var faults = map[string]func(t *testing.T, g *group, old int) (active int){
	"kill": func(t *testing.T, g *group, old int) int { return g.without(t, old, func(r *relay.Relay) { r.Kill() }) },
	"term": func(t *testing.T, g *group, old int) int {
		return g.without(t, old, func(r *relay.Relay) { r.Stop(t) })
	},
	"stop": func(t *testing.T, g *group, old int) int {
		g.relays[old].Freeze(t)
		g.frozen = g.relays[old]
		active := g.taken(t, old)
		g.more(t)
		g.relays[old].Thaw(t)
		g.frozen = nil
		return active
	},
	"hole": func(t *testing.T, g *group, old int) int {
		g.proxies[old].Hole(true)
		g.awaitState(t, g.relays[old], "lapsed") // by its own clock: it has no other information
		active := g.taken(t, old)
		g.more(t)
		g.proxies[old].Hole(false)
		return active
	},
}

// without ends a relay, and starts it again when another one has published more.
func (g *group) without(t *testing.T, old int, end func(*relay.Relay)) (active int) {
	t.Helper()
	end(g.relays[old])
	active = g.taken(t, old)
	g.more(t)
	g.relays[old].Launch(t)
	return active
}

// Of several relays on the same tables with separate state directories one publishes, whatever happens to it, and another takes
// over: after SIGKILL, SIGTERM, SIGSTOP for longer than its lease, and a cut between it and the database. No row is lost, no two
// publish at the same time, and a relay that comes back stands by. The same is true for tables that have less, also for one
// without a status.
func TestActiveAndStandby(t *testing.T) {
	every := []string{"kill", "term", "stop", "hole"}
	type scene struct {
		name   string
		flavor testkit.Flavor
		relays int
		tables []*layouts.Layout
		faults []string
	}
	scenes := []scene{
		{"mysql_2", testkit.MySQL, 2, full, every},
		{"mariadb_3", testkit.MariaDB, 3, full, every},
		{"mysql_BCDF", testkit.MySQL, 2, lesser(), []string{"kill"}},
	}
	if *long {
		scenes[2].faults = every
		for _, flavor := range []testkit.Flavor{testkit.MariaDB, testkit.MariaDB118} {
			scenes = append(scenes, scene{string(flavor) + "_BCDF", flavor, 2, lesser(), every})
		}
	}
	for _, c := range scenes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, testkit.SharedDatabase(t, c.flavor), c.relays, c.tables...)
			stop := g.write(t)
			g.more(t)
			g.positioned(t)
			active := 0
			for _, fault := range c.faults {
				old := active
				active = faults[fault](t, g, old)
				g.awaitState(t, g.relays[old], "standby")
				if state(g.relays[active]) != "active" {
					t.Errorf("after %s: the relay that came back has taken the lease away again", fault)
				}
			}
			stop()
			g.account(t)
			for _, r := range g.relays {
				r.Stop(t)
			}
		})
	}
}
