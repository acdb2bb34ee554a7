package table_test

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// Every layout with every preset: where there are faults, the preset of the layout is named.
func TestG19_ThePresetThatFitsIsNamed(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			schema := db.CreateSchema(t)
			client := db.Connect(t, schema)
			for _, l := range layouts.All() {
				testkit.Exec(t, client, l.Create())
				own, _, _ := strings.Cut(strings.TrimPrefix(l.Config, "preset: "), ",")
				tried := 0
				for _, preset := range table.Presets() {
					m, err := table.Preset(preset)
					testkit.Must(t, err)
					m.Schema, m.Name = schema, l.Table
					_, findings, err := table.Load(t.Context(), client, m)
					testkit.Must(t, err)
					if !server.HasFault(findings) {
						continue
					}
					tried++
					f, found, err := table.Fitting(t.Context(), client, m)
					testkit.Must(t, err)
					if !found || !strings.Contains(f.Fix, "preset: "+own+"}") || !strings.Contains(f.What, own+" fits this table, "+preset+" does not") {
						t.Errorf("layout %s with preset %s: %v %+v", l.Name, preset, found, f)
					}
				}
				if tried < 3 {
					t.Errorf("layout %s: %d presets have faults", l.Name, tried)
				}
			}
			m, err := table.Preset("outbox")
			testkit.Must(t, err)
			testkit.Exec(t, client, "CREATE TABLE other (id INT PRIMARY KEY)")
			m.Schema, m.Name = schema, "other"
			if f, found, err := table.Fitting(t.Context(), client, m); found || err != nil {
				t.Errorf("a table that fits none: %+v, %v", f, err)
			}
		})
	}
}
