package table

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Fitting looks which preset fits the table of a mapping that has faults. found is false where the table is not there or no preset fits. Of
// several that fit it is the one that uses most columns of the table, then the one with
// fewest warnings, then the owners' layout before the relay's own.
func Fitting(ctx context.Context, db *sql.DB, m Mapping) (f server.Finding, found bool, err error) {
	type candidate struct {
		preset            string
		columns, warnings int
	}
	var best candidate
	for _, preset := range Presets() {
		p, err := Preset(preset)
		if err != nil {
			return f, false, err
		}
		p.Schema, p.Name, p.TimeZone = m.Schema, m.Name, m.TimeZone
		t, findings, err := Load(ctx, db, p)
		if err != nil {
			return f, false, err
		}
		if t == nil {
			continue
		}
		one := candidate{preset: preset}
		used := map[string]bool{}
		for _, column := range t.columns {
			if column != nil {
				used[column.Name] = true
			}
		}
		one.columns = len(used)
		for _, finding := range findings {
			if finding.Severity == server.Warning {
				one.warnings++
			}
		}
		if best.preset == "" || one.columns > best.columns || one.columns == best.columns &&
			(one.warnings < best.warnings || one.warnings == best.warnings && best.preset == "outbox") {
			best = one
		}
	}
	if best.preset == "" {
		return f, false, nil
	}
	what := fmt.Sprintf("the preset %s fits this table, %s does not", best.preset, m.Preset)
	if best.preset == m.Preset {
		what = fmt.Sprintf("the preset %s fits this table without the columns that the configuration maps", best.preset)
	}
	return server.Finding{
		Severity: server.Warning, Subject: m.Schema + "." + m.Name, What: what,
		Fix: fmt.Sprintf("write under tables: - {name: %s.%s, preset: %s}", m.Schema, m.Name, best.preset),
	}, true, nil
}
