package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// presence is one of the account's, closed at the end of the test.
func presence(t *testing.T, cfg Config, tables ...string) *Presence {
	t.Helper()
	p, err := NewPresence(cfg, tables, false)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, p.Close()) })
	return p
}

func look(t *testing.T, p *Presence) []OtherRelay {
	t.Helper()
	others, err := p.Look(context.Background())
	testkit.Must(t, err)
	return others
}

// Two relays of one table see each other, in either order of their starts. They do not see relays of other tables. An account
// without any privilege is enough.
func TestRelaysOfOneTableSeeEachOther(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		schema := d.CreateSchema(t)
		testkit.Must(t, d.CreateUser(ctx, "present_"+schema, "secret"))
		t.Cleanup(func() { testkit.Exec(t, d.Root(), "DROP USER present_"+schema) })
		cfg := Config{Address: d.Addr(), User: "present_" + schema, Password: setting.NewSecret("secret")}
		shared, own := schema+".shared", schema+"."+strings.Repeat("long", 16)
		first, second := presence(t, cfg, own, shared), presence(t, cfg, shared)
		for range 2 {
			if others := look(t, first); others != nil {
				t.Fatalf("the only relay sees %v", others)
			}
		}
		if others := look(t, second); len(others) != 1 || others[0].Table != shared || !strings.HasPrefix(others[0].From, "127.0.0.1:") {
			t.Errorf("the second relay sees %v", others)
		}
		if others := look(t, first); len(others) != 1 || others[0].Table != shared || others[0].From == "" {
			t.Errorf("the first relay sees %v", others)
		}
		third := presence(t, cfg, shared)
		if others := look(t, third); len(others) != 2 {
			t.Errorf("the third relay sees %v", others)
		}

		db := open(t, cfg, nil, Session{})
		others, err := OtherRelays(ctx, db, []string{shared, own, schema + ".unused"})
		if err != nil || len(others) != 3 || others[0].Table != shared || others[2].Table != own {
			t.Errorf("from outside: %v, %v", others, err)
		}

		testkit.Must(t, first.Close())
		testkit.WaitFor(t, 30*time.Second, "the third relay to get the place of the first", func() bool { return len(look(t, third)) == 1 })
		if others := look(t, second); len(others) != 1 {
			t.Errorf("the second relay sees %v", others)
		}
	})
}

// Relays with a lease leave it to the lease who publishes: the lock of one that was taken over is no other relay, until the server
// would have ended the connection of a process that is frozen. A relay without a lease is one at once, for both sides.
func TestRelaysWithALease(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		table := d.CreateSchema(t) + ".a"
		leased := func() *Presence {
			p, err := NewPresence(root(d), []string{table}, true)
			testkit.Must(t, err)
			t.Cleanup(func() { testkit.Must(t, p.Close()) })
			return p
		}
		first, second := leased(), leased()
		for _, p := range []*Presence{first, second, first} {
			if others := look(t, p); others != nil {
				t.Errorf("a relay with the lease counts %v", others)
			}
		}
		for connection, since := range first.seen {
			first.seen[connection] = since.Add(-(presenceTimeout + presenceSlack + 1) * time.Second)
		}
		if others := look(t, first); len(others) != 1 || !others[0].Leased {
			t.Errorf("one that stays is counted as %v", others)
		}
		alone := presence(t, root(d), table)
		if others := look(t, alone); len(others) != 2 || !others[0].Leased {
			t.Errorf("the relay without a lease sees %v", others)
		}
		if others := look(t, second); len(others) != 1 || others[0].Leased {
			t.Errorf("the relay with the lease sees %v", others)
		}
	})
}

// A connection that was killed releases its locks; the next look takes them again.
func TestAPresenceConnectsAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		table := d.CreateSchema(t) + ".a"
		p := presence(t, root(d), table)
		look(t, p)
		holders := locksOf(t, d, table)
		testkit.Exec(t, d.Root(), fmt.Sprintf("KILL %d", holders[0]))
		testkit.WaitFor(t, 30*time.Second, "the lock to be taken again", func() bool {
			if _, err := p.Look(context.Background()); err != nil {
				return false
			}
			now := locksOf(t, d, table)
			return now[0] != 0 && now[0] != holders[0] && now[1] == 0
		})
		var seconds int
		testkit.Must(t, p.conn.QueryRowContext(context.Background(), "SELECT @@SESSION.wait_timeout").Scan(&seconds))
		if seconds != presenceTimeout {
			t.Errorf("the server would keep the locks of a dead machine for %d s", seconds)
		}
	})
}

func locksOf(t *testing.T, d *testkit.Database, table string) tableLocks {
	t.Helper()
	all, err := readLocks(context.Background(), d.Root(), []string{table})
	testkit.Must(t, err)
	return all.holders[0]
}

// A connection that breaks in the middle of the network keeps its locks until the server notices. That is no other relay.
func TestTheOwnLostConnectionIsNoOtherRelay(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		broken := testkit.NewProxy(t, d.Addr())
		network := testkit.NewProxy(t, broken.Addr())
		cfg := root(d)
		cfg.Address = network.Addr()
		table := d.CreateSchema(t) + ".a"
		p := presence(t, cfg, table)
		look(t, p)
		held := locksOf(t, d, table)[0]
		broken.Hole(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // of this look alone: the others may take their time
		defer cancel()
		if _, err := p.Look(ctx); err == nil {
			t.Fatal("the connection was not cut")
		}
		network.SetTarget(d.Addr()) // the server does not hear of the lost connection's end
		others := look(t, p)
		if now := locksOf(t, d, table); now[0] != held || now[1] == 0 || others != nil {
			t.Errorf("locks %v, of them the lost connection's %d; other relays: %v", now, held, others)
		}
	})
}
