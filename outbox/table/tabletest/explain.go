package tabletest

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Explain returns the access of a statement: index, type and remarks.
func (b *Bench) Explain(s *table.Statement) (key, access, extra string) {
	b.Helper()
	// Explained on a connection that sends text, like the statements of the relay.
	rows, err := b.Writer.Query("EXPLAIN FORMAT=TRADITIONAL "+s.String(), s.Args...)
	testkit.Must(b, err)
	defer rows.Close()
	names, err := rows.Columns()
	testkit.Must(b, err)
	for rows.Next() {
		values, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		testkit.Must(b, rows.Scan(into...))
		for i, name := range names {
			switch strings.ToLower(name) {
			case "key":
				key += values[i].String
			case "type":
				access += values[i].String
			case "extra":
				extra += values[i].String
			}
		}
	}
	testkit.Must(b, rows.Err())
	return key, access, extra
}

// MostlySent makes the first 2,700 of 3,000 rows SENT, the last 20 claimed ones, and gives a hundred a due time.
func (b *Bench) MostlySent() {
	b.Helper()
	testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=2, next_retry_time=created_at WHERE id <= 2700")
	testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET next_retry_time=NOW(3) - INTERVAL id SECOND WHERE id > 2900")
	testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=1 WHERE id > 2980")
	testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
}

// IndexLayouts are the indexes on the status that tables come with.
var IndexLayouts = []IndexLayout{
	{"due", "status, next_retry_time", table.ByDue, false, ""},
	{"due and id", "status, next_retry_time, id", table.ByDue, false, ""},
	{"due, key of bytes", "status, next_retry_time", table.ByDue, false, "BINARY(4)"},
	{"attempts and due", "status, retry_count, next_retry_time", table.ByAttempts, false, ""},
	{"created", "status, created_at", table.ByCreated, false, ""},
	{"created, key of text, no due time", "status, created_at", table.ByCreated, true, "VARCHAR(64) COLLATE utf8mb4_general_ci"},
	{"status", "status", table.ByStatus, false, ""},
	{"status, key of text", "status", table.ByStatus, false, "VARCHAR(64) COLLATE utf8mb4_general_ci"},
	{"none", "", table.ByKey, false, ""},
}

// IndexLayout is one of them.
type IndexLayout struct {
	Name     string
	Columns  string
	Strategy table.Strategy
	NoDue    bool   // no column plays NextRetryTime
	Key      string // the type of the primary key; "" is the preset's
}

// ID is a primary key as SQL. Neighbours of a text key differ in case.
func (l *IndexLayout) ID(n int) string {
	switch {
	case l.Key == "":
		return fmt.Sprint(n)
	case strings.HasPrefix(l.Key, "BINARY"):
		return fmt.Sprintf("x'%08x'", n)
	}
	return fmt.Sprintf("'%s%d'", []string{"k", "K"}[n%2], n)
}

// Number is the other way round: of an identity's key.
func (l *IndexLayout) Number(id string) (n int) {
	if strings.HasPrefix(l.Key, "BINARY") {
		_, _ = fmt.Sscanf(id, "%x", &n)
	} else {
		_, _ = fmt.Sscan(strings.TrimLeft(id, "kK"), &n)
	}
	return n
}

// Reindex gives the table another index on the status, and its columns values that the preset's DDL does not allow.
func (b *Bench) Reindex(l IndexLayout) {
	b.Helper()
	alter := "ALTER TABLE " + b.Quoted + " DROP INDEX idx_sweep, MODIFY created_at DATETIME(3) NULL DEFAULT CURRENT_TIMESTAMP(3), MODIFY retry_count INT NULL DEFAULT 0"
	if l.Columns != "" {
		alter += ", ADD INDEX by_layout (" + l.Columns + ")"
	}
	if l.Key != "" {
		alter += ", MODIFY id " + l.Key + " NOT NULL"
	}
	testkit.Exec(b, b.DB, alter)
	m := b.Mapping("outbox")
	if l.NoDue {
		m.Set(table.NextRetryTime, "")
	}
	t, findings, err := table.Load(b.Ctx, b.DB, m)
	testkit.Must(b, err)
	if t == nil {
		b.Fatalf("findings %+v", findings)
	}
	if warned := slices.ContainsFunc(findings, func(f server.Finding) bool { return f.Severity == server.Warning }); warned != (l.Columns == "") {
		b.Errorf("findings %+v", findings)
	}
	b.Use(t)
}

// InOrder checks that a query is a range of the index, in its order.
func (b *Bench) InOrder(what string, s *table.Statement, how table.Strategy, behind bool) {
	b.Helper()
	key, access, extra := b.Explain(s)
	want := "by_layout"
	if how == table.ByKey {
		want = "PRIMARY"
	}
	switch {
	case access == "": // no row can match
	case key != want, strings.Contains(extra, "filesort"), strings.Contains(extra, "temporary"):
		b.Errorf("%s: key %s, type %s, extra %s", what, key, access, extra)
	case access == "ALL", access == "index" && (how != table.ByKey || behind):
		b.Errorf("%s: key %s, type %s, extra %s", what, key, access, extra)
	}
}
