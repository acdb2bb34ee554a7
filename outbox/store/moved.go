package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// movedTo is the quoted name of the table that rows move to.
func (t *mapped) movedTo(suffix string) string {
	return table.Quote(t.Schema()) + "." + table.Quote(t.Bare()+suffix)
}

func (t *mapped) moveDDL(suffix string) string {
	statements, _ := table.MoveDDL(t.Schema(), t.Bare(), suffix)
	return strings.Join(statements, ";\n") + ";"
}

// copyRows writes rows, whole, into the other table. The columns are read in the transaction that has locked the rows, which keeps the
// table from being altered: a column that was added since the start is copied too.
func (t *mapped) copyRows(ctx context.Context, tx *sql.Tx, suffix string, ids []string) error {
	columns, wrong, err := t.copied(ctx, tx, suffix)
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s: %s; fix: %s", wrong[0].Subject, wrong[0].What, wrong[0].Fix)
	}
	list := strings.Join(columns, ", ")
	s := table.Text("INSERT INTO ", t.movedTo(suffix), " (", list, ") SELECT ", list)
	t.FromKeys(s, len(ids), func(i int) string { return ids[i] })
	return run(ctx, tx, s, len(ids))
}

// copied compares both tables. It returns the quoted names of the columns that a copy has, or what is wrong with the other table.
func (t *mapped) copied(ctx context.Context, db server.Querier, suffix string) (columns []string, wrong []server.Finding, err error) {
	own, err := columnsOf(ctx, db, t.Schema(), t.Bare())
	if err != nil {
		return nil, nil, err
	}
	others, err := columnsOf(ctx, db, t.Schema(), t.Bare()+suffix)
	if err != nil {
		return nil, nil, err
	}
	to := t.movedTo(suffix)
	fault := func(column, what, fix string) {
		wrong = append(wrong, server.Finding{Severity: server.Fault, Subject: t.Name() + suffix + column, What: what, Fix: fix})
	}
	if len(others) == 0 {
		fault("", "there is no such table, or the account may not see it: expired rows of "+t.Name()+" are to move there",
			"make it: canal-outbox migrate (source.user needs CREATE for that), or let an administrator run:\n"+t.moveDDL(suffix))
		return nil, wrong, nil
	}
	var clauses []string // of the other table's ALTER TABLE
	change := func(column, what, clause string) {
		fault(column, what, "")
		clauses = append(clauses, clause)
	}
	for _, c := range own {
		if c.generated {
			continue
		}
		columns = append(columns, table.Quote(c.name))
		i := slices.IndexFunc(others, func(o movedColumn) bool { return strings.EqualFold(o.name, c.name) })
		switch {
		case i < 0:
			change("."+c.name, "there is no such column, and "+t.Name()+" has it", "ADD COLUMN "+c.definition())
		case others[i].generated:
			change("."+c.name, "it is a generated column, and in "+t.Name()+" it is not", "MODIFY COLUMN "+c.definition())
		case others[i].kind != c.kind || !others[i].nullable && c.nullable:
			change("."+c.name, fmt.Sprintf("it is %s, and in %s it is %s", others[i].text(), t.Name(), c.text()), "MODIFY COLUMN "+c.definition())
		}
	}
	for _, o := range others {
		if !o.generated && !o.optional && !slices.ContainsFunc(own, func(c movedColumn) bool { return strings.EqualFold(o.name, c.name) }) {
			change("."+o.name, "it has no default, and "+t.Name()+" has no such column", "MODIFY COLUMN "+table.Quote(o.name)+" "+o.kind+" NULL")
		}
	}
	for i := range wrong { // one statement, because each may rebuild the table
		if wrong[i].Fix = "the ALTER TABLE of " + t.Name() + suffix + " above"; i == 0 {
			wrong[i].SQL = "ALTER TABLE " + to + "\n  " + strings.Join(clauses, ",\n  ")
			wrong[i].Fix = wrong[i].SQL
		}
	}
	return columns, wrong, nil
}

// movedColumn is what matters of a column for a copy of its value.
type movedColumn struct {
	name      string
	kind      string // type with everything the server prints, and character set
	nullable  bool
	optional  bool // an INSERT need not name it
	generated bool
}

func (c movedColumn) text() string {
	if c.nullable {
		return c.kind + " NULL"
	}
	return c.kind + " NOT NULL"
}

func (c movedColumn) definition() string { return table.Quote(c.name) + " " + c.text() }

func columnsOf(ctx context.Context, db server.Querier, schema, name string) (all []movedColumn, err error) {
	query := table.Text("SELECT COLUMN_NAME, COLUMN_TYPE, COALESCE(CHARACTER_SET_NAME, ''), IS_NULLABLE = 'YES', ",
		"IS_NULLABLE = 'YES' OR COLUMN_DEFAULT IS NOT NULL OR EXTRA LIKE '%auto_increment%', LOWER(EXTRA) ",
		"FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION")
	query.Args = []any{schema, name}
	var c movedColumn
	var charset, extra string
	err = query.Each(ctx, db, []any{&c.name, &c.kind, &charset, &c.nullable, &c.optional, &extra}, func() error {
		if charset != "" {
			c.kind += " CHARACTER SET " + charset
		}
		c.generated = strings.Contains(extra, "generated") && !strings.Contains(extra, "default_generated")
		all = append(all, c)
		return nil
	})
	return all, err
}

// moveProbe shows whether rows may be written into the table that they move to, removeProbe whether they may be deleted.
func (t *mapped) moveProbe(suffix string) server.Probe {
	to := t.movedTo(suffix)
	return server.Probe{Privileges: "SELECT, INSERT", On: to, Statement: "EXPLAIN INSERT INTO " + to + " SELECT * FROM " + to + " WHERE FALSE"}
}

func (t *mapped) removeProbe() server.Probe {
	remove := t.deleteRows([]string{t.NoID()})
	return server.Probe{Privileges: "DELETE", On: t.Quoted(), Statement: "EXPLAIN " + remove.String(), Args: remove.Args}
}

// CheckRetention says what leaves the table when, and what is in the way. The probes show the privileges that it needs.
func CheckRetention(ctx context.Context, db *sql.DB, bound *table.Table, of []table.Expiry) (findings []server.Finding, probes []server.Probe, err error) {
	t := withLocks(bound)
	for _, e := range of {
		if len(t.finalCodes(e.Status)) == 0 {
			findings = append(findings, server.Finding{Severity: server.OK, Subject: t.Name(), What: "no code is mapped to " +
				strings.ToUpper(e.Status.String()) + ": retention takes no such rows out"})
			continue
		}
		since := slices.DeleteFunc(table.FinalSince(e.Status), func(role table.Column) bool { return !t.Has(role) })
		if len(since) == 0 {
			findings = append(findings, server.Finding{
				Severity: server.Fault, Subject: t.Name(), What: fmt.Sprintf("no column says since when a row is %s, so that none can leave by its age", strings.ToUpper(e.Status.String())),
				Fix: "map one under tables[].columns as sent_at, last_exec_time, updated_at or created_at, or leave retention out",
			})
			continue
		}
		where := "are deleted"
		if e.Into != "" {
			where = "move to " + t.Name() + e.Into
			_, wrong, err := t.copied(ctx, db, e.Into)
			if err != nil {
				return nil, nil, fmt.Errorf("look at table %s%s: %w", t.Name(), e.Into, err)
			}
			if findings = append(findings, wrong...); len(wrong) > 0 {
				continue
			}
			probes = append(probes, t.moveProbe(e.Into))
		}
		probes = append(probes, t.removeProbe())
		findings = append(findings, server.Finding{Severity: server.OK, Subject: t.Name(), What: fmt.Sprintf("rows that are %s for %v %s; the age is that of %s; they are %s",
			strings.ToUpper(e.Status.String()), e.Age, where, t.columnNames(since), t.ways())})
	}
	return findings, probes, nil
}

// columnNames lists columns, the first one that a row has counts.
func (t *mapped) columnNames(roles []table.Column) string {
	var names []string
	for _, role := range roles {
		names = append(names, t.Type(role).Name)
	}
	return strings.Join(names, ", where that is NULL of ")
}
