package table

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
)

// The same table of another server has indexes of its own, and message ids like here; what would make its rows look different is an
// error.
func TestLoadFromAReplica(t *testing.T) {
	b := newBench(t, testkit.MySQL)
	b.create("outbox")
	b.load(b.mapping("outbox"))
	there := testkit.SharedDatabase(t, testkit.MariaDB).Connect(t, "mysql")
	there.SetMaxOpenConns(1) // one session, for its time zone
	if _, err := b.table.LoadFrom(b.ctx, there); err == nil || !strings.Contains(err.Error(), "no such table") {
		t.Errorf("without the table: %v", err)
	}
	testkit.Exec(t, there, "CREATE DATABASE "+b.schema)
	t.Cleanup(func() { testkit.Exec(t, there, "DROP DATABASE "+b.schema) })
	ddl, err := migrations.DDL("outbox", b.schema+".outbox")
	testkit.Must(t, err)
	testkit.Exec(t, there, ddl)
	testkit.Exec(t, there, "ALTER TABLE "+b.name+" DROP INDEX idx_sweep, DROP INDEX uk_message, ADD INDEX by_status (status)")
	found, err := b.table.LoadFrom(b.ctx, there)
	testkit.Must(t, err)
	if found.strategy != byStatus || *found.sweepIndex.Load() != "by_status" || b.table.strategy != byDue {
		t.Errorf("strategy %d there, %d here", found.strategy, b.table.strategy)
	}
	if found.appendID {
		t.Error("message ids there end with the key")
	}
	testkit.Exec(t, there, "SET SESSION time_zone = '+09:30'")
	if _, err := b.table.LoadFrom(b.ctx, there); err == nil || !strings.Contains(err.Error(), "time zone") {
		t.Errorf("with another time zone: %v", err)
	}
}
