package testkit

import (
	"context"
	"database/sql"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startsServers skips, under -short, a test of what every test with servers relies on and so shows as well: that servers start, stop,
// are killed and come back.
func startsServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the servers are those of all other tests")
	}
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	Must(t, db.QueryRow(query).Scan(&n))
	return n
}

func TestDatabaseLife(t *testing.T) {
	startsServers(t)
	for _, flavor := range Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			begin := time.Now()
			d := NewDatabase(t, DatabaseOptions{Flavor: flavor, Durable: true})
			t.Logf("first start %v", time.Since(begin))
			db := d.Connect(t, d.CreateSchema(t))
			Exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY)")
			Exec(t, db, "INSERT INTO t VALUES (1)")

			addr, pid := d.Addr(), d.PID()
			Must(t, d.Kill())
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Fatal("the port answers after Kill")
			}
			begin = time.Now()
			Must(t, d.Start(t.Context()))
			t.Logf("start after Kill %v", time.Since(begin))
			if d.Addr() != addr || d.PID() == pid {
				t.Fatalf("restarted as %d on %s, was %d on %s", d.PID(), d.Addr(), pid, addr)
			}
			if count(t, db, "SELECT COUNT(*) FROM t") != 1 {
				t.Fatal("a committed row is gone after Kill")
			}
			begin = time.Now()
			Must(t, d.Stop())
			t.Logf("stop %v", time.Since(begin))
			Must(t, d.Start(t.Context()))
			if count(t, db, "SELECT COUNT(*) FROM t") != 1 {
				t.Fatal("a committed row is gone after Stop")
			}
		})
	}
}

func TestDatabaseLeavesNothingBehind(t *testing.T) {
	startsServers(t)
	for _, flavor := range Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			d, err := StartDatabase(t.Context(), DatabaseOptions{Flavor: flavor})
			Must(t, err)
			pid := d.PID()
			Must(t, d.Close())
			if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
				t.Errorf("process %d is still there: %v", pid, err)
			}
			if _, err := os.Stat(d.Dir()); !os.IsNotExist(err) {
				t.Errorf("%s is still there: %v", d.Dir(), err)
			}
			Must(t, d.Close())
		})
	}
}

func TestDatabaseDefaultsAndOverrides(t *testing.T) {
	startsServers(t)
	for _, flavor := range Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			d := NewDatabase(t, DatabaseOptions{Flavor: flavor, Args: []string{"--binlog-row-image=MINIMAL"}})
			var image, metadata, format, version string
			Must(t, d.Root().QueryRow("SELECT @@binlog_row_image, @@binlog_format, @@version").Scan(&image, &format, &version))
			if !d.Before(8, 0) {
				Must(t, d.Root().QueryRow("SELECT @@binlog_row_metadata").Scan(&metadata))
			}
			if image != "MINIMAL" || metadata != "FULL" && !d.Before(8, 0) || format != "ROW" {
				t.Errorf("row image %s, metadata %s, format %s", image, metadata, format)
			}
			if isMariaDB(version) != (flavor == MariaDB) {
				t.Errorf("version %s", version)
			}
			t.Log(version)
		})
	}
}

func TestDatabasePauseAndPurge(t *testing.T) {
	startsServers(t)
	for _, flavor := range Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			d := NewDatabase(t, DatabaseOptions{Flavor: flavor})
			Must(t, d.Pause())
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := d.Root().PingContext(ctx); err == nil {
				t.Error("a paused server answers")
			}
			Must(t, d.Resume())
			before, err := d.BinaryLogs(t.Context())
			Must(t, err)
			Must(t, d.Purge(t.Context()))
			after, err := d.BinaryLogs(t.Context())
			Must(t, err)
			if len(after) != 1 || after[0] == before[0] {
				t.Errorf("logs before the purge %v, after %v", before, after)
			}
		})
	}
}

func TestSharedDatabaseSchemasAndUsers(t *testing.T) {
	startsServers(t)
	for _, flavor := range Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			d := SharedDatabase(t, flavor)
			if again := SharedDatabase(t, flavor); again != d {
				t.Fatal("a second server")
			}
			schema := d.CreateSchema(t)
			Exec(t, d.Connect(t, schema), "CREATE TABLE t (id INT PRIMARY KEY)")
			Must(t, d.CreateUser(t.Context(), "reader", "se cret", "SELECT ON "+schema+".*"))
			db, err := d.Open("reader", "se cret", schema)
			Must(t, err)
			defer db.Close()
			if count(t, db, "SELECT COUNT(*) FROM t") != 0 {
				t.Error("rows in a new table")
			}
			if _, err := db.Exec("INSERT INTO t VALUES (1)"); err == nil {
				t.Error("an account without INSERT inserted")
			}
		})
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	startsServers(t)
	for _, flavor := range Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			_, err := StartDatabase(t.Context(), DatabaseOptions{Flavor: flavor, Args: []string{"--no-such-option"}})
			if err == nil || !strings.Contains(err.Error(), "no-such-option") {
				t.Fatalf("error without the server's own words: %v", err)
			}
		})
	}
}
