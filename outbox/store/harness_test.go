package store

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// bench is a table with a store over it.
type bench struct {
	*tabletest.Bench
	store  *Store
	table  *mapped
	unlock func() // the row that badRows has locked
}

func over(inner *tabletest.Bench) *bench {
	b := &bench{Bench: inner}
	b.OnUse = func(t *table.Table) {
		b.store = New(b.Writer, []*table.Table{t}, nil, nil)
		b.table = b.store.byName[t.Name()]
	}
	if b.Table != nil {
		b.Use(b.Table)
	}
	return b
}

func onBoth(t *testing.T, preset string, test func(b *bench)) {
	tabletest.OnBoth(t, preset, func(b *tabletest.Bench) { test(over(b)) })
}

func on(t *testing.T, flavor testkit.Flavor, preset string, test func(b *bench)) {
	tabletest.On(t, flavor, preset, func(b *tabletest.Bench) { test(over(b)) })
}

func newBench(t *testing.T, flavor testkit.Flavor) *bench { return over(tabletest.New(t, flavor)) }

func onLayouts(t *testing.T, test func(b *bench, l *layouts.Layout)) {
	tabletest.OnLayouts(t, func(b *tabletest.Bench, l *layouts.Layout) { test(over(b), l) })
}

// markSent are completions that mark rows as sent.
func markSent(ids []outbox.Identity) (batch []outbox.Completion) {
	for _, id := range ids {
		batch = append(batch, outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
	}
	return batch
}

// toClaim are rows to claim.
func toClaim(ids []outbox.Identity) (batch []outbox.Candidate) {
	for _, id := range ids {
		batch = append(batch, outbox.Candidate{Identity: id, Status: outbox.Pending})
	}
	return batch
}

// writes are the statements that change many rows.
var writes = map[string]func(b *bench, ids []outbox.Identity) error{
	"write": func(b *bench, ids []outbox.Identity) error {
		_, err := b.store.Apply(b.Ctx, markSent(ids))
		return err
	},
	"claim": func(b *bench, ids []outbox.Identity) error {
		_, err := b.store.Claim(b.Ctx, toClaim(ids))
		return err
	},
}

// query reads what the store has written.
func (b *bench) query() *query.Reader {
	return query.New(b.Writer, []*table.Table{b.Table}, b.store.waits)
}

func (b *bench) apply(completions ...outbox.Completion) []outbox.WriteError {
	b.Helper()
	unwritable, err := b.store.Apply(b.Ctx, completions)
	testkit.Must(b, err)
	return unwritable
}

// due reads the list to its end in pages of limit.
func (b *bench) due(q table.DueQuery) []outbox.Candidate {
	b.Helper()
	var all []outbox.Candidate
	for at := (table.Cursor{}); !at.Done(); {
		page, next, err := b.store.Due(b.Ctx, b.table.Name(), at, q)
		testkit.Must(b, err)
		all, at = append(all, page...), next
	}
	return all
}
