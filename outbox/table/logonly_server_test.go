package table_test

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// A table without a status makes messages as Debezium's outbox event router does, and no Store has a statement on it. A row that can
// be no message says why; a value that the log does not show is no such row.
func TestLogOnlyTable(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		for _, l := range layouts.LogOnly() {
			t.Run(l.Name+"/"+string(flavor), func(t *testing.T) {
				b := tabletest.New(t, flavor)
				testkit.Exec(b, b.DB, l.Create())
				m, err := table.Preset("debezium-outbox")
				testkit.Must(b, err)
				m.Schema, m.Name = b.Schema, l.Table
				loaded, findings, err := table.Load(b.Ctx, b.DB, m)
				testkit.Must(b, err)
				if loaded == nil || !loaded.LogOnly() || len(store.Probes(loaded, true)) > 0 {
					t.Fatalf("table %v: %+v", loaded, findings)
				}
				said := false
				for _, f := range findings {
					said = said || f.Severity == server.OK && strings.HasPrefix(f.What, "no status: ")
				}
				if !said {
					t.Errorf("findings %+v", findings)
				}
				if s := store.New(b.DB, []*table.Table{loaded}, nil, nil); len(s.Tables()) > 0 {
					t.Error("a store has statements on it")
				}
				values := func(change func(map[table.Column]table.Value)) (list []table.Value) {
					byRole := map[table.Column]table.Value{
						table.ID: {Data: []byte("0123456789abcdef")}, table.MessageID: {Data: []byte("0123456789abcdef")}, table.Topic: {Data: []byte("orders")}, table.Key: {Data: []byte("k")},
						table.BizType: {Data: []byte("Created")}, table.Body: {Data: []byte("{}")}, table.CreatedAt: {Data: []byte("2026-01-02 03:04:05.678901")},
					}
					change(byRole)
					for _, role := range loaded.Reads() {
						list = append(list, byRole[role])
					}
					return list
				}
				got, err := loaded.Message(values(func(map[table.Column]table.Value) {}))
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
				got, err = loaded.Message(values(func(v map[table.Column]table.Value) { v[table.Topic] = table.Value{Data: []byte{}} }))
				if err != nil || !strings.Contains(got.Fault, "aggregatetype") || got.MessageID != id || string(got.Body) != "{}" {
					t.Errorf("a row without a topic: %+v, %v", got, err)
				}
				got, err = loaded.Message(values(func(v map[table.Column]table.Value) { v[table.Body] = table.Value{Null: true} }))
				if err != nil || got.Fault != "" || got.Body != nil {
					t.Errorf("a row without a body: %+v, %v", got, err)
				}
				if got, err = loaded.Message(values(func(v map[table.Column]table.Value) { v[table.Topic] = table.Value{Absent: true} })); err == nil {
					t.Errorf("a row whose topic is not known: %+v", got)
				}
			})
		}
	}
}
