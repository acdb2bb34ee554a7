package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// stateOf makes a state directory by running a relay on a database until it has published a row.
func stateOf(t *testing.T, db *testkit.Database) (*relay.Relay, *relay.Table) {
	t.Helper()
	schema := db.CreateSchema(t)
	table := relay.NewTable(t, db.Connect(t, schema), schema, "t_local_message")
	r := relay.New(t, relay.Options{Source: db.Addr(), Tables: []*relay.Table{table}, Sink: "stdout: {}"})
	testkit.Must(t, table.Insert(t.Context(), table.DB, relay.Row{BizType: "order", Key: "1", Topic: "orders", Body: []byte("x")}))
	r.Start(t)
	testkit.WaitFor(t, patience, "the row to be SENT", func() bool { return table.Count(t, "status = 2") == 1 })
	return r, table
}

func count(t *testing.T, a *attempt, where string) (n int) {
	t.Helper()
	testkit.Must(t, a.db.Root().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+a.schema+".t_local_message WHERE "+where).Scan(&n))
	return n
}

// Two processes on one directory: the second reports it and ends, the first continues (C01).
func TestC01_DirectoryOfARunningRelay(t *testing.T) {
	t.Parallel()
	r, table := stateOf(t, testkit.SharedMySQL(t))
	yaml, err := os.ReadFile(r.Config())
	testkit.Must(t, err)
	refused(t, string(yaml), 1, "in use by another canal-outbox", "two directories")
	testkit.Must(t, table.Insert(t.Context(), table.DB, relay.Row{BizType: "order", Key: "2", Topic: "orders", Body: []byte("x")}))
	testkit.WaitFor(t, patience, "the first relay to continue", func() bool { return table.Count(t, "status = 2") == 2 })
	r.Stop(t)
}

func TestStateDirectoryThatCannotBeMade(t *testing.T) {
	t.Parallel()
	a := newAttempt(t, testkit.SharedMySQL(t))
	file := filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	a.dir = filepath.Join(file, "state")
	refused(t, a.yaml(), 1, a.dir, "writable")
	if n := count(t, a, "status = 0 AND retry_count = 0"); n != 1 {
		t.Error("the row was touched")
	}
}
