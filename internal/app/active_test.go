package app

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// The statuses of a table are written soon where a relay that takes over has no other proof of what was sent.
func TestTablesWhoseRowsAloneShowWhatWasSent(t *testing.T) {
	db := testkit.SharedDatabase(t, testkit.MySQL)
	cfg := source(t, db, "soon", relayGrants)
	name := cfg.Tables[0].Name
	for _, c := range []struct {
		change   string
		readBack bool
		only     bool
	}{
		{"COMMENT = 'as it is made'", true, false},
		{"COMMENT = 'as it is made'", false, true},
		{"MODIFY last_exec_time DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", true, true}, // a row that was never sent looks like a sent one
	} {
		testkit.Exec(t, db.Root(), "ALTER TABLE "+name+" "+c.change)
		o, err := OpenOffline(t.Context(), cfg, false)
		testkit.Must(t, err)
		_, err = o.bind(t.Context())
		testkit.Must(t, err)
		if only := onlyInTables(o.tables, c.readBack); only[name] != c.only || len(only) > 1 {
			t.Errorf("%s, read back: %v: %v", c.change, c.readBack, only)
		}
		testkit.Must(t, o.Close())
	}
}
