package crash

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// leaseTime is short, so that a take-over does not hold up the test. Nothing is asserted about how long one takes.
const leaseTime = "lease: {time: 1s}"

// group is some relays of one table, as on several machines: each has a state directory and a way to the database of its own.
type group struct {
	*bed
	relays  []*relay.Relay
	proxies []*testkit.Proxy
	frozen  *relay.Relay
}

func newGroup(t *testing.T, flavor testkit.Flavor, n int) *group {
	t.Helper()
	g := &group{bed: newBed(t, flavor, nil, leaseTime)}
	g.table.NewLease(t)
	g.relays, g.proxies = []*relay.Relay{g.relay}, []*testkit.Proxy{g.proxy}
	for range n - 1 {
		proxy := testkit.NewProxy(t, g.db.Addr())
		g.proxies = append(g.proxies, proxy)
		g.relays = append(g.relays, relay.New(t, relay.Options{
			Source: proxy.Addr(), User: "user: root, tls: {mode: disabled}", Tables: []*relay.Table{g.table}, Sink: g.broker.Sink(), Extra: leaseTime,
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

// state is what a relay says about the lease; "" when it does not answer.
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

// taken waits until another relay than i is active, and returns which.
func (g *group) taken(t *testing.T, i int) (next int) {
	t.Helper()
	testkit.WaitFor(t, patience, "another relay to be active", func() bool {
		next = slices.IndexFunc(g.relays, func(r *relay.Relay) bool {
			return r != g.relays[i] && r != g.frozen && r.Running() && state(r) == "active"
		})
		return next >= 0
	})
	return next
}

// more waits until rows that were written after now are published.
func (g *group) more(t *testing.T) {
	t.Helper()
	want := g.load.Ledger.Len() + 20
	testkit.WaitFor(t, patience, "more rows to be SENT", func() bool { return g.table.Count(t, "status = 2") >= want })
}

// positioned waits until the lease has the position of the first start: who took over before it would make a first start of its own.
func (g *group) positioned(t *testing.T) {
	t.Helper()
	testkit.WaitFor(t, patience, "a position in the lease", func() bool {
		var n int
		testkit.Must(t, g.sql.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM canal_outbox_lease WHERE log_file <> ''").Scan(&n))
		return n == 1
	})
}

// unmixed checks that no two relays published at the same time: the broker's log of a partition changes from one to the other only
// where the lease went from one to the other, so that none comes back. A relay that goes on after it was active before has another
// producer id.
func (g *group) unmixed(t *testing.T) {
	t.Helper()
	for _, name := range g.load.Topics {
		stored, err := testkit.ReadKafkaTopic(t.Context(), g.broker.addr, name)
		testkit.Must(t, err)
		runs := map[int32][]int64{}
		for _, r := range stored {
			if of := runs[r.Partition]; len(of) == 0 || of[len(of)-1] != r.ProducerID {
				runs[r.Partition] = append(of, r.ProducerID)
			}
		}
		for partition, of := range runs {
			slices.Sort(of)
			if len(slices.Compact(slices.Clone(of))) != len(of) {
				t.Errorf("%s, partition %d: a relay published after another one had taken over: producers in order %v", name, partition, of)
			}
		}
	}
}

// Of several relays on one table with separate state directories one publishes, whatever happens to it, and another goes on: after
// SIGKILL, SIGTERM, SIGSTOP for longer than its lease, and a cut between it and the database. No row is lost, no two publish at a
// time, and who comes back stands by.
func TestActiveAndStandby(t *testing.T) {
	for _, c := range []struct {
		flavor testkit.Flavor
		relays int
	}{{testkit.MySQL, 2}, {testkit.MariaDB, 3}} {
		t.Run(fmt.Sprintf("%s_%d", c.flavor, c.relays), func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, c.flavor, c.relays)
			ctx, enough := context.WithCancel(t.Context())
			defer enough()
			wait := g.load.StartUntil(t, 2, func() bool {
				<-time.After(10 * time.Millisecond) // a load that leaves room for the others on the machine
				return ctx.Err() != nil
			})
			active := 0
			g.more(t)
			g.positioned(t)

			old := active
			g.relays[old].Kill()
			active = g.taken(t, old)
			g.more(t)
			g.relays[old].Launch(t)
			g.awaitState(t, g.relays[old], "standby")

			old = active
			g.relays[old].Stop(t)
			active = g.taken(t, old)
			g.more(t)
			g.relays[old].Launch(t)
			g.awaitState(t, g.relays[old], "standby")

			old = active
			g.relays[old].Freeze(t)
			g.frozen = g.relays[old]
			active = g.taken(t, old)
			g.more(t)
			g.relays[old].Thaw(t)
			g.frozen = nil
			g.awaitState(t, g.relays[old], "standby")

			old = active
			g.proxies[old].Hole(true)
			g.awaitState(t, g.relays[old], "lapsed") // by its own clock: it cannot know more
			active = g.taken(t, old)
			g.more(t)
			g.proxies[old].Hole(false)
			g.awaitState(t, g.relays[old], "standby")
			if state(g.relays[active]) != "active" {
				t.Error("who came back has taken the lease away again")
			}

			enough()
			wait()
			account := g.account(t)
			g.unmixed(t)
			t.Logf("%d rows, %d copies", g.load.Ledger.Len(), account.Duplicates())
			for _, r := range g.relays {
				if strings.Contains(r.Log(t), "published twice") {
					t.Error("a relay says that messages are published twice")
				}
				r.Stop(t)
			}
		})
	}
}
