// Package tabletest is the harness that the tests of outbox/table, outbox/store and outbox/query share: one outbox table on a real server, and how to
// bind it, fill it and look at its rows.
//
// Guarantee: each test has a schema of its own, which is dropped at its end. The package starts no goroutine; a Bench belongs to one test.
package tabletest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Bench is one table of a preset on one server, and how to talk to it.
type Bench struct {
	*testing.T
	Ctx    context.Context
	Server *testkit.Database
	DB     *sql.DB // root, as an application would
	Writer *sql.DB // the pool of the statements under test
	Table  *table.Table
	Schema string
	Quoted string             // the table's name, for statements of the test
	Next   int                // the number of the last row
	OnUse  func(*table.Table) // is called when the table was bound
}

// OnBoth runs a test on each server with a fresh table.
func OnBoth(t *testing.T, preset string, test func(b *Bench)) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) { On(t, flavor, preset, test) })
	}
}

// On runs a test on one server with a fresh table.
func On(t *testing.T, flavor testkit.Flavor, preset string, test func(b *Bench)) {
	b := New(t, flavor)
	b.Create(preset)
	b.Load(b.Mapping(preset))
	test(b)
}

// New makes an empty schema.
func New(t *testing.T, flavor testkit.Flavor) *Bench {
	d := testkit.SharedDatabase(t, flavor)
	b := &Bench{T: t, Ctx: context.Background(), Server: d, Schema: d.CreateSchema(t)}
	b.DB = d.Connect(t, b.Schema)
	b.Reopen()
	return b
}

// Reopen gives the statements new connections, which have the present settings of the server.
func (b *Bench) Reopen() {
	b.Helper()
	writer, err := server.Open(server.Config{Address: b.Server.Addr(), User: "root"}, nil, server.Session{Writes: true})
	testkit.Must(b, err)
	b.Cleanup(func() {
		if err := writer.Close(); err != nil {
			b.Logf("close: %v", err)
		}
	})
	b.Writer = writer
}

// Create makes the table of a preset.
func (b *Bench) Create(preset string) {
	b.Helper()
	ddl, err := migrations.DDL(preset, b.Schema+".outbox")
	testkit.Must(b, err)
	testkit.Exec(b, b.DB, ddl)
	b.Quoted = "`" + b.Schema + "`.`outbox`"
}

// Mapping is the mapping of that table.
func (b *Bench) Mapping(preset string) table.Mapping {
	b.Helper()
	m, err := table.Preset(preset)
	testkit.Must(b, err)
	m.Schema, m.Name = b.Schema, "outbox"
	return m
}

// Load binds the mapping and uses it; every finding that is not ok fails the test.
func (b *Bench) Load(m table.Mapping) {
	b.Helper()
	t, findings, err := table.Load(b.Ctx, b.DB, m)
	testkit.Must(b, err)
	for _, f := range findings {
		if f.Severity != server.OK {
			b.Fatalf("finding %+v", f)
		}
	}
	b.Use(t)
}

// LoadAsIs is Load of a table as its owners have it: warnings are theirs to read, only faults fail the test.
func (b *Bench) LoadAsIs(m table.Mapping) []server.Finding {
	b.Helper()
	t, findings, err := table.Load(b.Ctx, b.DB, m)
	testkit.Must(b, err)
	if t == nil {
		b.Fatalf("findings %+v", findings)
	}
	b.Use(t)
	return findings
}

// Use makes a bound table that of the test.
func (b *Bench) Use(t *table.Table) {
	b.Table = t
	if b.OnUse != nil {
		b.OnUse(t)
	}
}

// Insert adds n rows of t_local_message with what else is set, and returns their identities.
func (b *Bench) Insert(n int, set string) []outbox.Identity {
	b.Helper()
	var ids []outbox.Identity
	for range n {
		b.Next++
		key := fmt.Sprintf("key-%d", b.Next)
		query := "INSERT INTO " + b.Quoted + " SET biz_type='order', biz_key='" + key + "', topic='orders', message_body='{}'"
		if set != "" {
			query += ", " + set
		}
		id, err := testkit.Exec(b, b.DB, query).LastInsertId()
		testkit.Must(b, err)
		ids = append(ids, outbox.Identity{Table: b.Table.Name(), ID: fmt.Sprint(id), MessageID: "order:" + key})
	}
	return ids
}

// Row shows columns of one row, NULL as "NULL", joined by "|".
func (b *Bench) Row(id outbox.Identity, columns ...string) string {
	b.Helper()
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	testkit.Must(b, b.DB.QueryRow("SELECT "+strings.Join(columns, ", ")+" FROM "+b.Quoted+" WHERE id = "+id.ID).Scan(into...))
	var out []string
	for _, v := range values {
		if !v.Valid {
			v.String = "NULL"
		}
		out = append(out, v.String)
	}
	return strings.Join(out, "|")
}

// Want compares columns of a row.
func (b *Bench) Want(id outbox.Identity, want string, columns ...string) {
	b.Helper()
	if got := b.Row(id, columns...); got != want {
		b.Errorf("row %s: %v = %s, want %s", id.ID, columns, got, want)
	}
}

// InsertMany is Insert in one statement.
func (b *Bench) InsertMany(n int) []outbox.Identity {
	b.Helper()
	var ids []outbox.Identity
	var values []string
	for range n {
		b.Next++
		values = append(values, fmt.Sprintf("(%d, 'order', 'key-%d', 'orders', '{}')", b.Next, b.Next))
		ids = append(ids, outbox.Identity{Table: b.Table.Name(), ID: fmt.Sprint(b.Next), MessageID: fmt.Sprintf("order:key-%d", b.Next)})
	}
	testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" (id, biz_type, biz_key, topic, message_body) VALUES "+strings.Join(values, ", "))
	return ids
}

// MakeMoved makes the table that rows move to.
func (b *Bench) MakeMoved(suffix string) {
	b.Helper()
	statements, _ := table.MoveDDL(b.Schema, "outbox", suffix)
	for _, statement := range statements {
		testkit.Exec(b, b.DB, statement)
	}
}

// Finding returns the finding about a part of the table; the zero one when there is none.
func (b *Bench) Finding(m table.Mapping, part string) server.Finding {
	b.Helper()
	t, findings, err := table.Load(b.Ctx, b.DB, m)
	testkit.Must(b, err)
	if (t == nil) != server.HasFault(findings) {
		b.Errorf("table %v with findings %+v", t, findings)
	}
	for _, f := range findings {
		if strings.HasPrefix(f.Subject, b.Schema+".") && strings.HasSuffix(f.Subject, part) && f.Severity != server.OK {
			return f
		}
	}
	return server.Finding{}
}
