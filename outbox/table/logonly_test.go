package table

import (
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// A table without a status makes messages as Debezium's outbox event router does, and no Store has a statement on it. A row that can
// be no message says why; a value that the log does not show is no such row.
func TestLogOnlyTable(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		for _, l := range layouts.LogOnly() {
			t.Run(l.Name+"/"+string(flavor), func(t *testing.T) {
				b := newBench(t, flavor)
				testkit.Exec(b, b.db, l.Create())
				m, err := Preset("debezium-outbox")
				testkit.Must(b, err)
				m.Schema, m.Name = b.schema, l.Table
				table, findings, err := Load(b.ctx, b.db, m)
				testkit.Must(b, err)
				if table == nil || !table.LogOnly() || len(table.Probes(true)) > 0 {
					t.Fatalf("table %v: %+v", table, findings)
				}
				said := false
				for _, f := range findings {
					said = said || f.Severity == server.OK && strings.HasPrefix(f.What, "no status: ")
				}
				if !said {
					t.Errorf("findings %+v", findings)
				}
				if s := New(b.db, []*Table{table}); len(s.Tables()) > 0 {
					t.Error("a store has statements on it")
				}
				values := func(change func(map[Column]Value)) (list []Value) {
					byRole := map[Column]Value{
						ID: {Data: []byte("0123456789abcdef")}, MessageID: {Data: []byte("0123456789abcdef")}, Topic: {Data: []byte("orders")}, Key: {Data: []byte("k")},
						BizType: {Data: []byte("Created")}, Body: {Data: []byte("{}")}, CreatedAt: {Data: []byte("2026-01-02 03:04:05.678901")},
					}
					change(byRole)
					for _, role := range table.Reads() {
						list = append(list, byRole[role])
					}
					return list
				}
				got, err := table.Message(values(func(map[Column]Value) {}))
				testkit.Must(b, err)
				id := "0123456789abcdef"
				if l.Name == "F2" {
					id = "30313233343536373839616263646566"
				}
				if !got.LogOnly || got.Fault != "" || got.Status != outbox.Pending || got.Topic != "outbox.event.orders" || got.Key != "k" || got.ID != id ||
					got.MessageID != id || len(got.Headers) != 2 || got.Headers[0] != (outbox.Header{Name: "id", Value: id}) ||
					got.Headers[1] != (outbox.Header{Name: "eventType", Value: "Created"}) {
					t.Errorf("message %+v", got)
				}
				got, err = table.Message(values(func(v map[Column]Value) { v[Topic] = Value{Data: []byte{}} }))
				if err != nil || !strings.Contains(got.Fault, "aggregatetype") || got.MessageID != id || string(got.Body) != "{}" {
					t.Errorf("a row without a topic: %+v, %v", got, err)
				}
				got, err = table.Message(values(func(v map[Column]Value) { v[Body] = Value{Null: true} }))
				if err != nil || got.Fault != "" || got.Body != nil {
					t.Errorf("a row without a body: %+v, %v", got, err)
				}
				if got, err = table.Message(values(func(v map[Column]Value) { v[Topic] = Value{Absent: true} })); err == nil {
					t.Errorf("a row whose topic is not known: %+v", got)
				}
			})
		}
	}
}

// What needs a status is refused with its reason.
func TestLogOnlyMappingRefuses(t *testing.T) {
	for want, change := range map[string]func(*Mapping){
		"mapped to retry_count, but the table has no status":     func(m *Mapping) { m.Set(RetryCount, "n") },
		"mapped to next_retry_time, but the table has no status": func(m *Mapping) { m.Set(NextRetryTime, "due") },
		"codes are mapped, but no column to status":              func(m *Mapping) { m.SetCode("sent", "1") },
		"grace is set, but the table has no status":              func(m *Mapping) { m.Grace = time.Second },
		"ordering: key is set, but the table has no status":      func(m *Mapping) { m.Ordered = true },
		"no status code is mapped to pending":                    func(m *Mapping) { m.Set(StatusCode, "status") },
		"no column is mapped to body":                            func(m *Mapping) { m.Set(Body, "") },
	} {
		m, err := Preset("debezium-outbox")
		if err != nil {
			t.Fatal(err)
		}
		if faults := m.check(); len(faults) > 0 {
			t.Fatal(faults)
		}
		change(&m)
		if faults := strings.Join(m.check(), "; "); !strings.Contains(faults, want) {
			t.Errorf("%q, want %q", faults, want)
		}
	}
}
