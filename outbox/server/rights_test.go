package server

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A privilege that is granted while a pool is open holds for the pool's next statement: each of its sessions logs in again, also
// those that were idle when another one met the refusal.
func TestAPoolSeesGrantsThatComeLater(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		monitor := map[testkit.Flavor]string{testkit.MySQL: "REPLICATION CLIENT", testkit.MariaDB: "BINLOG MONITOR"}[d.Flavor]
		user := "later_" + d.CreateSchema(t)
		testkit.Must(t, d.CreateUser(ctx, user, "secret"))
		t.Cleanup(func() { testkit.Exec(t, d.Root(), "DROP USER "+user) })
		cfg := Config{Address: d.Addr(), User: user, Password: setting.NewSecret("secret")}
		for name, session := range map[string]Session{"plain": {MaxConns: 3}, "writing": {MaxConns: 3, Writes: true}} {
			db := open(t, cfg, nil, session)
			info, err := Inspect(ctx, db)
			testkit.Must(t, err)
			before := connections(t, db, 3)
			if _, err := info.End(ctx, db); Code(err) != 1227 {
				t.Fatalf("%s: without %s: %v", name, monitor, err)
			}
			testkit.Exec(t, d.Root(), "GRANT "+monitor+" ON *.* TO "+user)
			if _, err := info.End(ctx, db); err != nil {
				t.Errorf("%s: the privilege was given back, and the pool does not see it: %v", name, err)
			}
			for id := range connections(t, db, 3) {
				if before[id] {
					t.Errorf("%s: connection %d keeps the privileges of its login", name, id)
				}
			}
			testkit.Exec(t, d.Root(), "REVOKE "+monitor+" ON *.* FROM "+user)
		}
	})
}

// After a failover behind one address connections to the old server may stay open. None is used once its server is not the right one, whether it was idle or
// in use then.
func TestAPoolLeavesAServerThatIsNotTheRightOneAnyMore(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		var moved atomic.Bool
		asked := ID{}
		db := open(t, root(d), nil, Session{MaxConns: 2, Still: func(id ID) bool {
			asked = id
			return !moved.Load()
		}})
		before := connections(t, db, 1)
		used, err := db.Conn(t.Context())
		testkit.Must(t, err)
		idle, err := db.Conn(t.Context())
		testkit.Must(t, err)
		testkit.Must(t, idle.Close())
		moved.Store(true)
		testkit.Must(t, used.Close())
		if n := db.Stats().Idle; n != 1 {
			t.Errorf("%d connections wait, one was in use when its server became the wrong one", n)
		}
		for id := range connections(t, db, 1) {
			if before[id] {
				t.Errorf("connection %d is used though its server is not the right one", id)
			}
		}
		if info, err := Inspect(t.Context(), db); err != nil || !info.ID.Same(asked) {
			t.Errorf("asked about %s, the server is %s: %v", asked, info.ID, err)
		}
	})
}

// An error that has nothing to do with privileges costs no connection.
func TestAPoolKeepsItsConnections(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		db := open(t, root(d), nil, Session{MaxConns: 2})
		before := connections(t, db, 2)
		if _, err := db.Exec("DO nothing_known()"); err == nil {
			t.Fatal("an unknown function was called")
		}
		for id := range connections(t, db, 2) {
			if !before[id] {
				t.Errorf("connection %d is new", id)
			}
		}
	})
}

// connections returns the ids of n connections of a pool, which are idle afterwards.
func connections(t *testing.T, db *sql.DB, n int) map[int]bool {
	t.Helper()
	ids := map[int]bool{}
	for range n {
		conn, err := db.Conn(context.Background())
		testkit.Must(t, err)
		defer func() { testkit.Must(t, conn.Close()) }()
		var id int
		testkit.Must(t, conn.QueryRowContext(context.Background(), "SELECT CONNECTION_ID()").Scan(&id))
		ids[id] = true
	}
	return ids
}
