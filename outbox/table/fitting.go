package table

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Fit is how a preset fits a table.
type Fit struct {
	Preset   string
	Table    *Table           // bound; nil where the preset has faults
	Findings []server.Finding // of the preset with this table
	Columns  int              // columns of the table that have a role
	Exists   bool             // there is a table of this name, and it is no view
	Alters   bool             // there are faults, and an ALTER TABLE fixes all of them

	warnings, faults int
}

// better reports whether one fit is preferred to another: without faults, or with fewer; then with most columns of the table in use, then
// with fewest warnings, then the owners' layout before the relay's own.
func (f Fit) better(than Fit) bool {
	switch {
	case than.Preset == "":
		return true
	case f.faults != than.faults:
		return f.faults < than.faults
	case f.Columns != than.Columns:
		return f.Columns > than.Columns
	case f.warnings != than.warnings:
		return f.warnings < than.warnings
	}
	return than.Preset == "outbox"
}

// BestFit tries all presets on the table of a mapping, of which only Schema, Name and TimeZone count. Where none fits it is the nearest
// one, with what is wrong. The error is of the conversation with the server.
func BestFit(ctx context.Context, db *sql.DB, m Mapping) (Fit, error) {
	best, _, err := bestFit(ctx, db, m)
	return best, err
}

func bestFit(ctx context.Context, db *sql.DB, m Mapping) (best Fit, d description, err error) {
	failed := func(err error) (Fit, description, error) {
		return Fit{}, d, fmt.Errorf("look at table %s.%s: %w", m.Schema, m.Name, err)
	}
	if d, err = describe(ctx, db, m); err != nil {
		return failed(err)
	}
	for _, preset := range Presets() {
		p, err := Preset(preset)
		if err != nil {
			return failed(err)
		}
		p.Schema, p.Name, p.TimeZone = m.Schema, m.Name, m.TimeZone
		if d.alike, err = describeWords(ctx, db, p, d); err != nil {
			return failed(err)
		}
		if one := fit(p, d); one.better(best) {
			best = one
		}
	}
	return best, d, nil
}

// fit binds a mapping; the description stays as it is.
func fit(m Mapping, d description) Fit {
	d.definitions = maps.Clone(d.definitions) // findings about a column change its definition
	t, findings := bind(m, d)
	one := Fit{Preset: m.Preset, Table: t, Findings: findings, Exists: d.found && !d.view, Alters: true}
	for _, f := range findings {
		switch f.Severity {
		case server.Warning:
			one.warnings++
		case server.Fault:
			one.faults++
			one.Alters = one.Alters && (f.SQL != "" || strings.HasPrefix(f.Fix, otherClause))
		}
	}
	if one.Alters = one.Alters && one.faults > 0; one.faults > 0 {
		one.Table = nil
		return one
	}
	used := map[string]bool{}
	for _, column := range t.columns {
		if column != nil {
			used[column.Name] = true
		}
	}
	one.Columns = len(used)
	return one
}

// Fitting looks which preset fits the table of a mapping that has faults. found is false where the table is not there or no preset fits.
func Fitting(ctx context.Context, db *sql.DB, m Mapping) (f server.Finding, found bool, err error) {
	best, err := BestFit(ctx, db, m)
	if err != nil || best.Table == nil {
		return f, false, err
	}
	what := fmt.Sprintf("the preset %s fits this table, %s does not", best.Preset, m.Preset)
	if best.Preset == m.Preset {
		what = fmt.Sprintf("the preset %s fits this table without the columns that the configuration maps", best.Preset)
	}
	return server.Finding{
		Severity: server.Warning, Subject: m.Schema + "." + m.Name, What: what,
		Fix: fmt.Sprintf("write under tables: - {name: %s.%s, preset: %s}", m.Schema, m.Name, best.Preset),
	}, true, nil
}
