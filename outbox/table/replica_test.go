package table_test

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
)

// The same table of another server has indexes of its own, and message ids like here; what would make its rows look different is an
// error.
func TestLoadFromAReplica(t *testing.T) {
	b := tabletest.New(t, testkit.MySQL)
	b.Create("outbox")
	b.Load(b.Mapping("outbox"))
	there := testkit.SharedDatabase(t, testkit.MariaDB).Connect(t, "mysql")
	there.SetMaxOpenConns(1) // one session, for its time zone
	if _, err := b.Table.LoadFrom(b.Ctx, there); err == nil || !strings.Contains(err.Error(), "no such table") {
		t.Errorf("without the table: %v", err)
	}
	testkit.Exec(t, there, "CREATE DATABASE "+b.Schema)
	t.Cleanup(func() { testkit.Exec(t, there, "DROP DATABASE "+b.Schema) })
	ddl, err := migrations.DDL("outbox", b.Schema+".outbox")
	testkit.Must(t, err)
	testkit.Exec(t, there, ddl)
	testkit.Exec(t, there, "ALTER TABLE "+b.Quoted+" DROP INDEX idx_sweep, DROP INDEX uk_message, ADD INDEX by_status (status)")
	found, err := b.Table.LoadFrom(b.Ctx, there)
	testkit.Must(t, err)
	if found.Strategy() != table.ByStatus || found.SweepIndex() != "by_status" || b.Table.Strategy() != table.ByDue {
		t.Errorf("strategy %d there, %d here", found.Strategy(), b.Table.Strategy())
	}
	if found.AppendsID() {
		t.Error("message ids there end with the key")
	}
	testkit.Exec(t, there, "SET SESSION time_zone = '+09:30'")
	if _, err := b.Table.LoadFrom(b.Ctx, there); err == nil || !strings.Contains(err.Error(), "time zone") {
		t.Errorf("with another time zone: %v", err)
	}
}
