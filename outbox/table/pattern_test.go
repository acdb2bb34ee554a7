package table

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct{ pattern, takes, leaves string }{
		{"shop_*.t_local_message_{00..63}", "shop_eu.t_local_message_00 shop_.t_local_message_63", "shop_eu.t_local_message_64 shop_eu.t_local_message_1 shop.t_local_message_00"},
		{"shop_{0..3}.t", "shop_0.t shop_3.t", "shop_4.t shop_00.t"},
		{"{a,b}.t_{8..11}", "a.t_8 b.t_11", "c.t_8 a.t_12 a.t_08"},
		{"a.*", "a.x a.t_local_message", "b.x"},
		{"a.b+*", "a.b+c", "a.bbc"},
	} {
		schema, name, ok := SplitName(c.pattern)
		expression, err := compilePattern(schema, name)
		if !ok || err != nil {
			t.Fatalf("%s: %v", c.pattern, err)
		}
		for _, n := range strings.Fields(c.takes) {
			if !expression.MatchString(n) {
				t.Errorf("%s does not take %s", c.pattern, n)
			}
		}
		for _, n := range strings.Fields(c.leaves) {
			if expression.MatchString(n) {
				t.Errorf("%s takes %s", c.pattern, n)
			}
		}
	}
	for _, bad := range []string{"a.t_{", "a.t_}", "a.t_{}", "a.t_{3..1}", "a.t_{0..99999}", "a.t_{{0..3}}", "a.t_{a..b}", "a.t_{0*}"} {
		if err := CheckPattern(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// What exists decides; an exact name wins, copies of schema changes are left out, and what is wrong is told.
func TestExpand(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		db := testkit.SharedDatabase(t, flavor)
		schema := db.CreateSchema(t)
		for _, name := range []string{"t_00", "t_01", "t_2", "_t_00_new", "other"} {
			testkit.Exec(t, db.Root(), "CREATE TABLE "+schema+"."+name+" (id BIGINT PRIMARY KEY)")
		}
		testkit.Exec(t, db.Root(), "CREATE VIEW "+schema+".t_03 AS SELECT * FROM "+schema+".t_00")
		expand := func(names ...string) (got string, findings []server.Finding) {
			var maps []Mapping
			for _, name := range names {
				maps = append(maps, Mapping{Schema: schema, Name: name})
			}
			all, findings, err := Expand(t.Context(), db.Root(), maps)
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
