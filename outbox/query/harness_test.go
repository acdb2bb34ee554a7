package query

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// bench is a table with a store and a reader over it.
type bench struct {
	*tabletest.Bench
	store both
	table *mapped
}

type both struct {
	*store.Store
	*Reader
}

func withQueries(inner *tabletest.Bench) *bench {
	b := &bench{Bench: inner}
	b.OnUse = func(t *table.Table) { b.over(t) }
	if b.Table != nil {
		b.Use(b.Table)
	}
	return b
}

// over puts a store and a reader over tables.
func (b *bench) over(tables ...*table.Table) {
	waits := &table.WaitMap{}
	b.store = both{store.New(b.Writer, tables, waits, nil), New(b.Writer, tables, waits)}
	b.table = b.store.byName[b.Table.Name()]
}

func onBoth(t *testing.T, preset string, test func(b *bench)) {
	tabletest.OnBoth(t, preset, func(b *tabletest.Bench) { test(withQueries(b)) })
}

func on(t *testing.T, flavor testkit.Flavor, preset string, test func(b *bench)) {
	tabletest.On(t, flavor, preset, func(b *tabletest.Bench) { test(withQueries(b)) })
}

func onLayouts(t *testing.T, test func(b *bench, l *layouts.Layout)) {
	tabletest.OnLayouts(t, func(b *tabletest.Bench, l *layouts.Layout) { test(withQueries(b), l) })
}

func (b *bench) apply(completions ...outbox.Completion) {
	b.Helper()
	_, err := b.store.Apply(b.Ctx, completions)
	testkit.Must(b, err)
}

// due reads the list to its end in pages of limit.
func (b *bench) due(q table.DueQuery) (all []outbox.Candidate) {
	b.Helper()
	for at := (table.Cursor{}); !at.Done(); {
		page, next, err := b.store.Due(b.Ctx, b.table.Name(), at, q)
		testkit.Must(b, err)
		all, at = append(all, page...), next
	}
	return all
}
