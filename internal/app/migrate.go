package app

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Migration is one table and the SQL that makes it.
type Migration struct {
	Table  string `json:"table"`
	Preset string `json:"preset"`
	SQL    string `json:"sql"`    // what a person runs, as often as they like; "" when nothing is missing
	Status string `json:"status"` // printed, exists, applied, failed

	statements []string // what Migrate runs, one by one
	column     string   // that the last statement adds; "" for none
	older      string   // SQL for a table that is there without the column, which the first statement adds, too; "": that of all
}

// DDL is the SQL of named tables, as their presets have it.
func DDL(tables []config.Table) ([]Migration, error) {
	var all []Migration
	for _, t := range tables {
		if t.IsPattern() {
			return nil, operator.Usagef("--table %s is a pattern: name each table", t.Name)
		}
		text, err := migrations.DDL(t.Preset, t.Name)
		if err != nil {
			return nil, operator.Usagef("%v", err)
		}
		all = append(all, Migration{Table: t.Name, Preset: t.Preset, SQL: text, Status: "printed", statements: []string{text}})
	}
	return all, nil
}

// Migrations is what a configuration needs: its tables, those that their rows move to, and the lease. A table that a pattern matches is
// there; the tables that its rows move to may not be.
func Migrations(ctx context.Context, cfg *config.Config) ([]Migration, error) {
	named, matched, err := Matching(ctx, cfg)
	if err != nil {
		return nil, err
	}
	all, err := DDL(named)
	if err != nil {
		return nil, err
	}
	for _, t := range slices.Concat(named, matched) {
		schema, bare, _ := strings.Cut(t.Name, ".")
		for _, suffix := range cfg.RetentionOf(&t).Suffixes() {
			statements, text := table.MoveDDL(schema, bare, suffix)
			m := Migration{Table: t.Name + suffix, Preset: t.Preset, SQL: text, Status: "printed", statements: statements}
			if len(statements) > 1 {
				m.column = table.MovedAt
			}
			all = append(all, m)
		}
	}
	if len(cfg.Tables) == 0 {
		return all, nil
	}
	first := cfg.Tables[0]
	if first.IsPattern() {
		first = matched[0]
	}
	name, text, err := LeaseTable(cfg, first.Name)
	if name != "" && err == nil {
		schema, bare, _ := strings.Cut(name, ".")
		alter := lease.AddSentColumn("`" + schema + "`.`" + bare + "`")
		all = append(all, Migration{
			Table: name, Preset: "lease", SQL: text, Status: "printed", statements: []string{text, alter}, column: lease.SentColumn,
			older: table.AddOnce(schema, bare, lease.SentColumn, alter) + "\n",
		})
	}
	return all, err
}

// MissingTables asks the server which of the tables are there, and empties what is not needed. A table that the account may not see counts as
// missing: its SQL changes nothing that exists.
func MissingTables(ctx context.Context, cfg *config.Config, all []Migration) (err error) {
	db, err := OpenDatabase(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return missing(ctx, db, all)
}

func missing(ctx context.Context, db *sql.DB, all []Migration) error {
	for i := range all {
		m := &all[i]
		schema, name, _ := strings.Cut(m.Table, ".")
		var columns, needed int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(COLUMN_NAME = ?), 0) FROM information_schema.COLUMNS "+
			"WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?", m.column, schema, name).Scan(&columns, &needed)
		switch {
		case err != nil:
			return fmt.Errorf("look for table %s: %w", m.Table, err)
		case columns > 0 && m.column != "" && needed == 0: // its first statement ran once, the second did not
			m.statements = m.statements[len(m.statements)-1:]
			m.SQL = cmp.Or(m.older, m.SQL)
		case columns > 0:
			m.SQL, m.Status, m.statements = "", "exists", nil
		case m.older != "":
			m.statements = m.statements[:1] // an account may have CREATE without ALTER
		}
	}
	return nil
}

// Migrate makes what is missing. A statement that the server refuses keeps no other table from being made; the error names each such table.
func Migrate(ctx context.Context, cfg *config.Config, all []Migration) (err error) {
	db, err := OpenDatabase(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := missing(ctx, db, all); err != nil {
		return err
	}
	var refused error
	for i := range all {
		if len(all[i].statements) == 0 {
			continue
		}
		all[i].Status = "applied"
		if err := apply(ctx, db, all[i]); err != nil {
			all[i].Status, refused = "failed", errors.Join(refused, err)
		}
	}
	return refused
}

func apply(ctx context.Context, db *sql.DB, m Migration) error {
	const twice = 1060 // DUP_FIELDNAME: another process has added the column meanwhile
	for _, statement := range m.statements {
		if _, err := db.ExecContext(ctx, statement); err != nil && server.Code(err) != twice {
			return fmt.Errorf("create table %s: %w (the account needs CREATE and ALTER on it; let an administrator run what `canal-outbox migrate --print` prints)", m.Table, err)
		}
	}
	return nil
}
