package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// offered bounds how many tables are looked at to be offered, and shown bounds how many are listed.
const offered, shown = 100, 12

// tableStep finds the table and its mapping.
type tableStep struct{ *setup }

// chooseTable offers the tables that look like an outbox, and maps the chosen one.
func (s tableStep) chooseTable(ctx context.Context) error {
	var candidates []table.Candidate
	if s.Mapping.Table == "" {
		var err error
		if candidates, err = s.candidates(ctx); err != nil {
			return err
		}
	}
	return s.settle(ctx, func(again bool) error { return s.askTable(ctx, again, candidates) }, func() error {
		s.content.table = entry{name: s.Mapping.Table, preset: "outbox"}
		return s.withDatabase(ctx, func(ctx context.Context, db *sql.DB) error { return s.mapTable(ctx, db) })
	})
}

// candidates lists tables. A list that takes too long, or that the account may not make, is no error: a name can be given.
func (s tableStep) candidates(ctx context.Context) (all []table.Candidate, err error) {
	var more bool
	err = s.withDatabase(ctx, func(ctx context.Context, db *sql.DB) (err error) {
		all, more, err = table.Candidates(ctx, db, offered)
		return err
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if s.terminal == nil {
		return nil, s.tableMissing(all, err)
	}
	if err != nil {
		s.terminal.say("  The tables could not be listed (%v).", err)
		return nil, nil
	}
	s.terminal.say("  The server is %s.", s.server)
	if len(all) == 0 {
		s.terminal.say("  No table that this account may see has one of the known layouts.")
	} else {
		s.terminal.say("  Tables that look like an outbox:")
	}
	for i, c := range all[:min(len(all), shown)] {
		s.terminal.say("  %2d  %-40s preset %s, %d columns in use", i+1, c.Name, c.Preset, c.Columns)
	}
	if more || len(all) > shown {
		s.terminal.say("  There are others; a name that is not listed can be given, or a pattern such as shop_*.t_local_message_{00..63}.")
	}
	return all, nil
}

// tableMissing is the fault of a script that names no table.
func (s tableStep) tableMissing(all []table.Candidate, err error) error {
	reason := "is missing: write schema.table"
	for i, c := range all[:min(len(all), shown)] {
		if i == 0 {
			reason += "; these look like an outbox:"
		}
		reason += fmt.Sprintf("\n  %s (preset %s)", c.Name, c.Preset)
	}
	if err != nil {
		reason += fmt.Sprintf("; the tables could not be listed: %v", err)
	}
	return faults(config.Fault{Path: "tables[0].name", Reason: reason})
}

func (s tableStep) askTable(ctx context.Context, again bool, candidates []table.Candidate) error {
	text, first := "Table (schema.table)", ""
	if len(candidates) > 0 {
		text, first = "Table (a number, or schema.table)", "1"
	}
	if again && len(candidates) == 0 {
		first = s.Mapping.Table
	} else if again {
		s.Mapping.Table = ""
	}
	if err := s.question(ctx, &s.Mapping.Table, again, "--table", text, first); err != nil {
		return err
	}
	if n, err := strconv.Atoi(s.Mapping.Table); err == nil && n >= 1 && n <= len(candidates) {
		s.Mapping.Table = candidates[n-1].Name
	}
	return nil
}

// mapTable finds the preset of the table, or maps it by names and types, and binds what the configuration will say.
func (s tableStep) mapTable(ctx context.Context, db *sql.DB) error {
	schema, name, _ := table.SplitName(s.Mapping.Table)
	all, findings, err := table.Expand(ctx, db, []table.Mapping{{Schema: schema, Name: name}})
	switch {
	case err != nil:
		return tableRead(s.Mapping.Table, err)
	case server.HasFault(findings):
		return s.tableFaults("tables[0].name", findings)
	}
	first := all[0]
	fit, err := table.BestFit(ctx, db, first)
	switch {
	case err != nil:
		return tableRead(s.Mapping.Table, err)
	case !fit.Exists:
		return s.tableFaults("tables[0].name", fit.Findings)
	case fit.Alters:
		return s.tableFaults("tables[0].name", fit.Findings)
	}
	m, guessed := table.Mapping{}, fit.Table == nil
	if guessed {
		m, err = table.Guess(ctx, db, first.Schema, first.Name)
	} else {
		m, err = table.Preset(fit.Preset)
	}
	if err != nil {
		return tableRead(s.Mapping.Table, err)
	}
	s.content.table = entry{name: s.Mapping.Table, preset: m.Preset, guessed: guessed}
	if err := s.override(&m); err != nil {
		return err
	}
	if s.terminal != nil && guessed {
		s.terminal.say("  No preset fits this table. By names and types its columns are {%s}.", known(m))
	} else if s.terminal != nil {
		s.terminal.say("  The preset %s fits: %d columns in use.", fit.Preset, fit.Columns)
	}
	if err := s.words(ctx, db, &m, first); err != nil {
		return err
	}
	return s.bind(ctx, db, m, all)
}

// override takes the columns and the topic of the answers.
func (s tableStep) override(m *table.Mapping) error {
	for _, name := range slices.Sorted(maps.Keys(s.Mapping.Columns)) {
		role, err := table.ParseColumn(name)
		if err != nil {
			return faults(config.Fault{Path: "tables[0].columns", Value: name, Reason: err.Error()})
		}
		m.Set(role, s.Mapping.Columns[name])
	}
	e := &s.content.table
	if e.topic = s.Mapping.Topic; e.topic != "" {
		rule, err := table.ParseTopic(e.topic)
		if err != nil {
			return faults(config.Fault{Path: "tables[0].topic", Value: e.topic, Reason: err.Error()})
		}
		m.SetTopic(rule)
	}
	var err error
	if e.guessed {
		e.columns, err = m.Overrides()
	} else {
		e.columns = maps.Clone(s.Mapping.Columns)
	}
	return err
}

// bind checks the mapping with each table.
func (s tableStep) bind(ctx context.Context, db *sql.DB, m table.Mapping, all []table.Mapping) error {
	s.tables = nil
	for _, one := range all {
		m.Schema, m.Name = one.Schema, one.Name
		t, findings, err := table.Load(ctx, db, m)
		if err != nil {
			return tableRead(s.Mapping.Table, err)
		}
		if t == nil && s.content.table.guessed {
			return s.guessFaults(m, findings)
		}
		if t == nil {
			return s.tableFaults("tables[0].columns", findings)
		}
		s.tables = append(s.tables, t)
	}
	return nil
}

func (s tableStep) tableFaults(path string, findings []server.Finding) error {
	var all []config.Fault
	for _, f := range findings {
		if f.Severity == server.Fault {
			all = append(all, found(path, s.Mapping.Table, f))
		}
	}
	return faults(all...)
}

// guessFaults says what is known of a table that no preset fits, and what is missing.
func (s tableStep) guessFaults(m table.Mapping, findings []server.Finding) error {
	first := config.Fault{Path: "tables[0].preset", Value: s.Mapping.Table, Reason: "no preset fits this table. By names and types its columns are {" + known(m) +
		"}.\n  fix: give what the next lines miss: --column ROLE=COLUMN, --topic NAME, --code STATUS=CODE"}
	err := s.tableFaults("tables[0].columns", findings)
	var rest *config.Faults
	if errors.As(err, &rest) {
		return faults(append([]config.Fault{first}, rest.Faults...)...)
	}
	return err
}

// known lists the columns of a mapping.
func known(m table.Mapping) string {
	var all []string
	for _, role := range slices.Sorted(maps.Keys(m.Columns)) {
		all = append(all, role.String()+": "+m.Columns[role])
	}
	return strings.Join(all, ", ")
}

// tableRead is the fault of a table that the server does not show.
func tableRead(name string, err error) error {
	if server.Classify(err) != server.Service {
		return err
	}
	return faults(config.Fault{Path: "tables[0].name", Value: name, Reason: err.Error() + "\n  fix: give --user the SELECT privilege on the table"})
}
