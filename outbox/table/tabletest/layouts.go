package tabletest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// mapped is the mapping that a layout's configuration means.
func MappingOf(b *Bench, l *layouts.Layout) table.Mapping {
	b.Helper()
	preset, _, _ := strings.Cut(strings.TrimPrefix(l.Config, "preset: "), ",")
	m, err := table.Preset(preset)
	testkit.Must(b, err)
	m.Schema, m.Name = b.Schema, l.Table
	for name, code := range l.Codes {
		m.SetCode(name, code)
	}
	if l.Name == "binary" {
		for _, role := range []table.Column{table.BizType, table.RetryCount, table.SentAt, table.FailReason, table.CreatedAt} {
			m.Set(role, "")
		}
		for _, role := range []table.Column{table.ID, table.MessageID, table.Key} {
			m.Set(role, "id")
		}
		m.Set(table.Body, "body")
		m.SetCode("failed", "")
		m.SetTopic(table.TopicRule{Column: "kind", Topics: map[string]string{"1": "orders"}})
	}
	return m
}

// OnLayouts runs a test on each layout on each server.
func OnLayouts(t *testing.T, test func(b *Bench, l *layouts.Layout)) {
	for _, flavor := range testkit.Flavors() {
		for _, l := range append(layouts.All(), layouts.Keys()...) {
			t.Run(l.Name+"/"+string(flavor), func(t *testing.T) {
				b := New(t, flavor)
				testkit.Exec(b, b.DB, l.Create())
				b.Quoted = "`" + b.Schema + "`.`" + l.Table + "`"
				b.LoadAsIs(MappingOf(b, l))
				test(b, l)
			})
		}
	}
}

// Add inserts row n of a layout.
func (b *Bench) Add(l *layouts.Layout, n int) {
	b.Helper()
	query, args := l.Insert(n, "orders", fmt.Sprint("body ", n))
	testkit.Exec(b, b.DB, query, args...)
}

// Shows reports whether a condition holds for row n.
func (b *Bench) Shows(l *layouts.Layout, n int, condition string, args ...any) bool {
	b.Helper()
	var holds bool
	testkit.Must(b, b.DB.QueryRow("SELECT COALESCE("+condition+", FALSE) FROM "+b.Quoted+" WHERE "+l.Where(n), args...).Scan(&holds))
	return holds
}

// WantStatus checks the status of row n.
func (b *Bench) WantStatus(l *layouts.Layout, n int, status string) {
	b.Helper()
	if !b.Shows(l, n, l.Status+" = ?", l.Codes[status]) {
		b.Errorf("row %d is not %s", n, status)
	}
}
