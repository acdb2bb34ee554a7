package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// onBoth runs a test against the shared server of each flavor.
func onBoth(t *testing.T, test func(t *testing.T, d *testkit.Database)) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) { test(t, testkit.SharedDatabase(t, flavor)) })
	}
}

func open(t *testing.T, cfg Config, guard func(context.Context, ID) error, session Session) *sql.DB {
	t.Helper()
	db, err := Open(cfg, guard, session)
	testkit.Must(t, err)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Logf("close: %v", err)
		}
	})
	return db
}

func root(d *testkit.Database) Config { return Config{Address: d.Addr(), User: "root"} }

func TestInspectBothFlavors(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		db := open(t, root(d), nil, Session{Writes: true})
		info, err := Inspect(ctx, db)
		testkit.Must(t, err)
		t.Logf("%+v", info)
		if string(info.Flavor) != string(d.Flavor) || info.Major < 5 || info.ServerID != uint32(d.Port()) {
			t.Errorf("identity or version: %+v", info)
		}
		if (info.Flavor == outbox.MySQL) != (info.UUID != "") {
			t.Errorf("UUID %q", info.UUID)
		}
		if !info.GTID || !info.LogBin || info.BinlogFormat != "ROW" || info.RowImage != "FULL" || (info.RowMetadata != "FULL") != d.Before(8, 0) ||
			!info.LogReplicas || info.ReadOnly || info.NetWriteLimit != time.Minute || info.MaxPacket == 0 {
			t.Errorf("settings: %+v", info)
		}
		if info.SessionImage != "MINIMAL" || info.SkipsOwnEvents != (info.Flavor == outbox.MariaDB) {
			t.Errorf("the writing session is not narrow: %+v", info)
		}
		zone, err := Zone(ctx, db, nil)
		testkit.Must(t, err)
		if _, here := time.Now().Zone(); zone.String() == "" || offset(zone, time.Now().Unix()) != here {
			t.Errorf("zone %q, now %v, this machine has %d s", zone, time.Now().In(zone), here)
		}
	})
}

func TestPositionsBothFlavors(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		db := open(t, root(d), nil, Session{})
		schema := d.CreateSchema(t)
		info, err := Inspect(ctx, db)
		testkit.Must(t, err)
		before, err := info.End(ctx, db)
		testkit.Must(t, err)
		testkit.Exec(t, db, "CREATE TABLE "+schema+".a (id INT PRIMARY KEY)")
		after, err := info.End(ctx, db)
		testkit.Must(t, err)
		if before.Compare(after) >= 0 || before.GTIDs == after.GTIDs || after.GTIDs == "" {
			t.Errorf("end did not move: %+v, %+v", before, after)
		}
		if _, err := outbox.ParseGTIDSet(info.Flavor, after.GTIDs); err != nil {
			t.Error(err)
		}
		first, err := info.Earliest(ctx, db)
		testkit.Must(t, err)
		if first.Offset != 4 || first.Compare(before) > 0 {
			t.Errorf("earliest %+v", first)
		}
		for _, c := range []struct {
			p    outbox.Position
			want bool
		}{
			{first, true},
			{after, true},
			{outbox.Position{File: after.File, Offset: after.Offset + 1<<30}, false},
			{outbox.Position{File: "binlog.999999", Offset: 4}, false},
		} {
			if got, err := info.HasFile(ctx, db, c.p); err != nil || got != c.want {
				t.Errorf("has %v: %v, %v", c.p, got, err)
			}
		}
		info, err = Inspect(ctx, db)
		testkit.Must(t, err)
		if r, why := CheckIdentity(info.ID, after, info, after); r != Same {
			t.Errorf("%v: %s", r, why)
		}
	})
}

// Every new connection is shown to the guard, and what it refuses runs no statement.
func TestGuardSeesEveryConnection(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		seen, refuse := 0, error(nil)
		db := open(t, root(d), func(_ context.Context, id ID) error {
			seen++
			if id.ServerID != uint32(d.Port()) {
				t.Errorf("identity %v", id)
			}
			return refuse
		}, Session{MaxConns: 1})
		for range 2 {
			testkit.Must(t, db.PingContext(ctx))
		}
		if seen != 1 {
			t.Fatalf("%d checks of one connection", seen)
		}
		var id int64
		testkit.Must(t, db.QueryRow("SELECT CONNECTION_ID()").Scan(&id))
		testkit.Exec(t, d.Root(), fmt.Sprintf("KILL %d", id))
		refuse = errors.New("not ours")
		var err error
		testkit.WaitFor(t, 10*time.Second, "the killed connection to be replaced", func() bool {
			_, err = db.ExecContext(ctx, "SELECT 1")
			return seen > 1
		})
		var refused *RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, refuse) || Classify(err) != Service {
			t.Fatalf("got %v", err)
		}
	})
}

func TestSessionSettings(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		db := open(t, root(d), nil, Session{MaxConns: 1})
		schema := d.CreateSchema(t)
		for name, want := range map[string]string{
			"innodb_lock_wait_timeout": "1", "lock_wait_timeout": "2", "sql_mode": "NO_AUTO_VALUE_ON_ZERO,STRICT_TRANS_TABLES",
			"character_set_client": "utf8mb4", "character_set_results": "utf8mb4", "autocommit": "1", "binlog_row_image": "FULL",
		} {
			var got string
			testkit.Must(t, db.QueryRow("SELECT @@session."+name).Scan(&got))
			if got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
		isolation := "transaction_isolation"
		if d.Flavor == testkit.MariaDB {
			isolation = "tx_isolation"
			var limit int
			testkit.Must(t, db.QueryRow("SELECT @@session.in_predicate_conversion_threshold").Scan(&limit))
			if limit != 0 {
				t.Errorf("IN lists of %d members become subqueries", limit)
			}
		}
		var got string
		testkit.Must(t, db.QueryRow("SELECT @@session."+isolation).Scan(&got))
		if got != "READ-COMMITTED" {
			t.Errorf("isolation %q", got)
		}
		testkit.Exec(t, db, "CREATE TABLE "+schema+".a (id INT PRIMARY KEY, n INT)")
		testkit.Exec(t, db, "INSERT INTO "+schema+".a VALUES (1, 1)")
		n, err := testkit.Exec(t, db, "UPDATE "+schema+".a SET n = 1 WHERE id = 1").RowsAffected()
		if err != nil || n != 1 {
			t.Errorf("an unchanged row counts as %d, %v; want found-rows semantics", n, err)
		}
	})
}

// A53: neither password nor DSN is in what goes wrong; wrong credentials are a matter for the operator.
func TestA53_ErrorsHoldNoPassword(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		cfg := Config{Address: d.Addr(), User: "unknown", Password: setting.NewSecret("canary-secret")}
		err := open(t, cfg, nil, Session{}).Ping()
		if err == nil || strings.Contains(err.Error(), "canary") || Classify(err) != Service {
			t.Fatalf("%v: %v", Classify(err), err)
		}
		if !strings.Contains(err.Error(), d.Addr()) {
			t.Errorf("the address is missing in %v", err)
		}
	})
}
