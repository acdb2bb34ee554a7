package table

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// bench is one table of a preset on one server, and how to talk to it.
type bench struct {
	*testing.T
	ctx    context.Context
	server *testkit.Database
	db     *sql.DB // root, as an application would
	store  *Store
	table  *Table
	schema string
	name   string // quoted, for statements of the test
	next   int
	unlock func() // the row that badRows has locked
}

// onBoth runs a test on each server with a fresh table.
func onBoth(t *testing.T, preset string, test func(b *bench)) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) { on(t, flavor, preset, test) })
	}
}

func on(t *testing.T, flavor testkit.Flavor, preset string, test func(b *bench)) {
	b := newBench(t, flavor)
	b.create(preset)
	b.load(b.mapping(preset))
	test(b)
}

func newBench(t *testing.T, flavor testkit.Flavor) *bench {
	d := testkit.SharedDatabase(t, flavor)
	b := &bench{T: t, ctx: context.Background(), server: d, schema: d.CreateSchema(t)}
	b.db = d.Connect(t, b.schema)
	b.reopen()
	return b
}

// reopen gives the store new connections, which have the server's settings of now.
func (b *bench) reopen() {
	b.Helper()
	writer, err := server.Open(server.Config{Address: b.server.Addr(), User: "root"}, nil, server.Session{Writes: true})
	testkit.Must(b, err)
	b.Cleanup(func() {
		if err := writer.Close(); err != nil {
			b.Logf("close: %v", err)
		}
	})
	b.store = New(writer, nil)
}

func (b *bench) create(preset string) {
	b.Helper()
	ddl, err := migrations.DDL(preset, b.schema+".outbox")
	testkit.Must(b, err)
	testkit.Exec(b, b.db, ddl)
	b.name = "`" + b.schema + "`.`outbox`"
}

func (b *bench) mapping(preset string) Mapping {
	b.Helper()
	m, err := Preset(preset)
	testkit.Must(b, err)
	m.Schema, m.Name = b.schema, "outbox"
	return m
}

// load binds the mapping and puts a store over it; every finding that is not ok fails the test.
func (b *bench) load(m Mapping) {
	b.Helper()
	t, findings, err := Load(b.ctx, b.db, m)
	testkit.Must(b, err)
	for _, f := range findings {
		if f.Severity != server.OK {
			b.Fatalf("finding %+v", f)
		}
	}
	b.use(t)
}

// loadAsIs is load of a table as its owners have it: warnings are theirs to read, only faults fail the test.
func (b *bench) loadAsIs(m Mapping) []server.Finding {
	b.Helper()
	t, findings, err := Load(b.ctx, b.db, m)
	testkit.Must(b, err)
	if t == nil {
		b.Fatalf("findings %+v", findings)
	}
	b.use(t)
	return findings
}

func (b *bench) use(t *Table) {
	b.table = t
	b.store = New(b.store.db, []*Table{t})
}

// insert adds n rows of t_local_message with what else is set, and returns their identities.
func (b *bench) insert(n int, set string) []outbox.Identity {
	b.Helper()
	var ids []outbox.Identity
	for range n {
		b.next++
		key := fmt.Sprintf("key-%d", b.next)
		query := "INSERT INTO " + b.name + " SET biz_type='order', biz_key='" + key + "', topic='orders', message_body='{}'"
		if set != "" {
			query += ", " + set
		}
		id, err := testkit.Exec(b, b.db, query).LastInsertId()
		testkit.Must(b, err)
		ids = append(ids, outbox.Identity{Table: b.table.name, ID: fmt.Sprint(id), MessageID: "order:" + key})
	}
	return ids
}

// row shows columns of one row, NULL as "NULL", joined by "|".
func (b *bench) row(id outbox.Identity, columns ...string) string {
	b.Helper()
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	testkit.Must(b, b.db.QueryRow("SELECT "+strings.Join(columns, ", ")+" FROM "+b.name+" WHERE id = "+id.ID).Scan(into...))
	var out []string
	for _, v := range values {
		if !v.Valid {
			v.String = "NULL"
		}
		out = append(out, v.String)
	}
	return strings.Join(out, "|")
}

func (b *bench) want(id outbox.Identity, want string, columns ...string) {
	b.Helper()
	if got := b.row(id, columns...); got != want {
		b.Errorf("row %s: %v = %s, want %s", id.ID, columns, got, want)
	}
}

func (b *bench) apply(completions ...outbox.Completion) []outbox.WriteError {
	b.Helper()
	unwritable, err := b.store.Apply(b.ctx, completions)
	testkit.Must(b, err)
	return unwritable
}

// due reads the list to its end in pages of limit.
func (b *bench) due(q DueQuery) []outbox.Candidate {
	b.Helper()
	var all []outbox.Candidate
	for at := (Cursor{}); !at.Done(); {
		page, next, err := b.store.Due(b.ctx, b.table.name, at, q)
		testkit.Must(b, err)
		all, at = append(all, page...), next
	}
	return all
}

// One row's way through claim, retry, claim, sent, on both presets.
func TestLifeOfARow(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		id := b.insert(1, "headers='{\"trace\":\"1\"}', tag='paid'")[0]
		found := b.due(DueQuery{ExpiredClaims: time.Minute})
		if len(found) != 1 || found[0].Identity != id || found[0].Status != outbox.Pending || found[0].Topic != "orders" {
			b.Fatalf("due: %+v", found)
		}
		stamp, err := b.store.Claim(b.ctx, found)
		testkit.Must(b, err)
		b.want(id, "1|"+stamp+"|canal-outbox", "status", "CAST(last_exec_time AS CHAR)", "updated_by")
		messages, _, err := b.store.ReadBack(b.ctx, stamp, []outbox.Identity{id})
		testkit.Must(b, err)
		if len(messages) != 1 {
			b.Fatalf("read back %d rows", len(messages))
		}
		m := messages[0]
		if m.Identity != id || m.Topic != "orders" || m.Tag != "paid" || m.Key != "key-1" || m.BizType != "order" ||
			string(m.Body) != "{}" || m.Headers[0] != (outbox.Header{Name: "trace", Value: "1"}) || m.Claim != stamp ||
			m.Path != outbox.PathSweep || m.Status != outbox.Sending || m.MaxRetry != -1 || m.Since.IsZero() || time.Since(m.CreatedAt).Abs() > time.Hour {
			b.Errorf("message %+v", m)
		}
		retry := outbox.Completion{
			Identity: id, Action: outbox.ActionRetry, Delay: time.Hour, Claim: stamp, Reason: strings.Repeat("ä", 2000),
		}
		b.apply(retry)
		b.apply(retry)
		b.want(id, "0|1|1|1024", "status", "retry_count",
			"TIMESTAMPDIFF(SECOND, NOW(), next_retry_time) BETWEEN 3500 AND 3600", "CHAR_LENGTH(fail_reason)")
		if found := b.due(DueQuery{}); len(found) != 0 {
			b.Errorf("a row that waits is due: %+v", found)
		}
		found = b.due(DueQuery{Horizon: 2 * time.Hour})
		if len(found) != 1 || !found[0].Waiting || found[0].DueInMilli < 3500_000 || found[0].DueInMilli > 3600_000 ||
			found[0].RetryCount != 1 {
			b.Fatalf("waiting: %+v", found)
		}
		b.apply(outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
		b.want(id, "2|1", "status", "retry_count")
		b.apply(outbox.Completion{Identity: id, Action: outbox.ActionFail, RetryCount: 1, Reason: "late"})
		b.want(id, "2", "status")
	})
}
