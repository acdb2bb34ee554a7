package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// statement is one of the SQL, without a semicolon at its end.
type statement struct{ comment, text string }

// planStep decides what is written.
type planStep struct{ *setup }

// plan completes the configuration and the SQL.
func (s planStep) plan(ctx context.Context) error {
	c := &s.content
	c.user, c.passwordFile = s.account.name, s.account.passwordFile
	c.environment = c.passwordFile == "" && (s.env("SOURCE_PASSWORD") != "" || s.env("SOURCE_PASSWORD_FILE") != "")
	c.server = s.server.String()
	if c.kind == "rocketmq" && c.table.preset == "debezium-outbox" && c.table.topic == "" {
		c.table.topic = "outbox-event-{aggregatetype}" // no dot is allowed in its names
	}
	cfg, err := s.parse()
	if err != nil {
		return err
	}
	s.sql = s.indexes()
	if s.account.create {
		err = s.withDatabase(ctx, func(ctx context.Context, db *sql.DB) error { return s.newAccount(ctx, db, cfg) })
	} else {
		s.ownAccount(ctx, cfg)
	}
	if len(s.sql) > 0 {
		c.sqlFile = s.Files.SQL
	}
	return err
}

// indexes are those without which each sweep reads the whole table. They are built while the table is in use.
func (s planStep) indexes() (all []statement) {
	for _, t := range s.tables {
		if t.LogOnly() || t.Strategy() != table.ByKey {
			continue
		}
		all = append(all, statement{
			"The index by which the sweep finds rows that wait. It is built while the table is in use.",
			"ALTER TABLE " + t.Quoted() + " " + t.AddSweepIndex() + ", ALGORITHM=INPLACE, LOCK=NONE",
		})
	}
	return all
}

// newAccount makes the account, the lease table and all privileges.
func (s planStep) newAccount(ctx context.Context, db *sql.DB, cfg *config.Config) error {
	var probes []server.Probe
	for _, t := range s.tables {
		probes = append(probes, tableProbes(t)...)
	}
	name, ddl, err := app.LeaseTable(cfg, s.tables[0].Name())
	if err != nil {
		return err
	}
	leaseTable := ""
	if name != "" {
		found, err := lease.Check(ctx, db, name, ddl)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(found.SQL, strings.TrimSpace(ddl)) { // it is there
			ddl = ""
		}
		schema, bare, _ := strings.Cut(name, ".")
		leaseTable = server.QuoteName(schema) + "." + server.QuoteName(bare)
	}
	s.sql = statementsFor(s.account, s.server.info, s.sql, probes, leaseTable, ddl)
	return nil
}

// statementsFor are those of a new account, in the order in which a server takes them: a privilege on a missing table is refused. leaseTable is
// "" without a lease, ddl is "" where its table is there.
func statementsFor(a account, info server.Info, indexes []statement, probes []server.Probe, leaseTable, ddl string) []statement {
	all := append([]statement{{
		"The relay's account.", "CREATE USER IF NOT EXISTS " + server.QuoteAccount(a.String()) + " IDENTIFIED BY " + literal(a.password),
	}}, indexes...)
	needs := info.Needs(probes)
	if ddl != "" {
		all = append(all, statement{"One of several relays is active by this table.", ddl})
	}
	if leaseTable != "" {
		needs = append(needs, lease.Privileges(leaseTable))
	}
	if privilege := info.Narrowing(); privilege != "" && info.Platform == server.Plain { // administrators of managed servers may not grant it
		needs = append(needs, server.Probe{Privileges: privilege, On: "*.*"})
	}
	comment := "Its privileges."
	for _, need := range needs {
		grant := need.Grant(a.String())
		if !slices.ContainsFunc(all, func(one statement) bool { return one.text == grant }) {
			all = append(all, statement{comment, grant})
			comment = ""
		}
	}
	return all
}

// tableProbes are the privileges on a table. One without a status is not read, but the account must see its columns.
func tableProbes(t *table.Table) []server.Probe {
	if t.LogOnly() {
		return []server.Probe{{Privileges: "SELECT", On: t.Quoted()}}
	}
	return store.Probes(t, true)
}

// ownAccount takes what doctor says that the account lacks.
func (s planStep) ownAccount(ctx context.Context, cfg *config.Config) {
	comment := "What the relay's account lacks."
	for _, text := range app.Statements(app.Doctor(ctx, s.as(cfg, s.login))) {
		if strings.HasPrefix(text, "GRANT ") || strings.Contains(text, "CREATE TABLE ") {
			s.sql = append(s.sql, statement{comment, text})
			comment = ""
		}
	}
}

// literal writes a password for a statement.
func literal(password setting.Secret) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(password.Get()) + "'"
}

// masked is a text without the password.
func (s *setup) masked(text string) string {
	if !s.account.password.Set() {
		return text
	}
	return strings.ReplaceAll(text, "IDENTIFIED BY "+literal(s.account.password), "IDENTIFIED BY '"+setting.Mask+"'")
}

// statements are those of the SQL, with the password masked.
func (s *setup) statements() (all []string) {
	all = []string{}
	for _, one := range s.sql {
		all = append(all, s.masked(trimmed(one.text))+";")
	}
	return all
}

// trimmed is a statement without the comments on its columns and the semicolon at its end.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "-- ") {
			b.WriteString(line)
		}
	}
	return strings.TrimSuffix(strings.TrimSpace(b.String()), ";")
}

// firstLine begins a file of ours, so that one that an interrupted run has left can be replaced.
const firstLine = "-- Written by `canal-outbox init` for "

// script is the SQL as a file.
func (s *setup) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n-- Run it as an administrator of %s at %s.\n", firstLine, s.Files.Config, s.content.server, s.Address)
	for _, one := range s.sql {
		if one.comment != "" {
			b.WriteString("\n-- " + one.comment + "\n")
		}
		b.WriteString(trimmed(one.text) + ";\n")
	}
	return b.String()
}

// apply runs the SQL, if that is wanted.
func (s outcome) apply(ctx context.Context, result *Result) (err error) {
	if len(s.sql) == 0 {
		return nil
	}
	run := s.Apply && s.Yes
	if s.terminal != nil && !s.Yes && (s.Apply || s.account.create) { // the relay's own account may not grant
		s.terminal.say("\nThe SQL is in %s.", result.SQL)
		if run, err = s.terminal.yes(ctx, "Run it now, as "+s.login.user+"?"); err != nil {
			return fmt.Errorf("the files are written, and the SQL was not run: %w", err)
		}
	}
	if !run {
		return nil
	}
	cfg, err := s.parse()
	if err != nil {
		return err
	}
	db, err := app.OpenForStatements(s.as(cfg, s.login))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for i, one := range s.sql {
		if _, err := db.ExecContext(ctx, trimmed(one.text)); err != nil {
			return &operator.Error{Code: operator.CodeFailure, Message: fmt.Sprintf("the files are written, and the database refused statement %d of %d in %s: %v\n  %s\n"+
				"let an administrator run the rest: %s < %s", i+1, len(s.sql), result.SQL, err, s.statements()[i], s.client(), word(result.SQL))}
		}
	}
	result.Applied = true
	return nil
}
