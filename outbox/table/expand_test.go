package table_test

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// What exists decides; an exact name wins, copies of schema changes are left out, and what is wrong is reported.
func TestExpand(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		db := testkit.SharedDatabase(t, flavor)
		schema := db.CreateSchema(t)
		for _, name := range []string{"t_00", "t_01", "t_2", "_t_00_new", "other"} {
			testkit.Exec(t, db.Root(), "CREATE TABLE "+schema+"."+name+" (id BIGINT PRIMARY KEY)")
		}
		testkit.Exec(t, db.Root(), "CREATE VIEW "+schema+".t_03 AS SELECT * FROM "+schema+".t_00")
		expand := func(names ...string) (got string, findings []server.Finding) {
			var maps []table.Mapping
			for _, name := range names {
				maps = append(maps, table.Mapping{Schema: schema, Name: name})
			}
			all, findings, err := table.Expand(t.Context(), db.Root(), maps)
			testkit.Must(t, err)
			for _, m := range all {
				got += " " + m.Name
			}
			return strings.TrimSpace(got), findings
		}
		for _, c := range []struct{ names, want, fault string }{
			{"t_{00..63}", "t_00 t_01", ""},
			{"*t_*", "t_00 t_01 t_2", ""},
			{"_t_*", "_t_00_new", ""},
			{"t_* t_01", "t_00 t_2 t_01", ""},
			{"absent", "absent", ""},
			{"absent_* other", "other", "matches no table"},
			{"t_0* t_{00..01}", "t_00 t_01", "belongs to the pattern"},
		} {
			got, findings := expand(strings.Fields(c.names)...)
			if got != c.want || (c.fault == "") != (findings == nil) || findings != nil && !strings.Contains(findings[0].What, c.fault) {
				t.Errorf("%s, %s: %q, %v", flavor, c.names, got, findings)
			}
		}
	}
}
