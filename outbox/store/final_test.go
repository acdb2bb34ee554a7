package store

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Order by key asks which key a FAILED row has before it is tried again: the list of final rows has the same key as the message.
func TestFinalRowsHaveTheirKey(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Exec(b, b.DB, "DROP TABLE IF EXISTS "+b.Quoted)
		b.Create("outbox")
		testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" (biz_type, biz_key, topic, message_body, status, sharding_key) VALUES "+
			"('order', 'k1', 'orders', '{}', 3, 'customer 1'), ('order', 'k2', 'orders', '{}', 3, ''), ('order', 'k3', 'orders', '{}', 3, NULL)")
		m := b.Mapping("outbox")
		m.Ordered = true
		m.Columns[table.ShardingKey] = "sharding_key"
		b.LoadAsIs(m)
		found, _, err := b.store.Final(b.Ctx, b.table.Name(), table.Cursor{}, table.FinalQuery{Status: outbox.Failed})
		testkit.Must(b, err)
		want := map[string]string{"order:k1": "customer 1", "order:k2": "k2", "order:k3": "k3"}
		for _, c := range found {
			if c.Key != want[c.MessageID] || c.Topic != "orders" || c.Status != outbox.Failed {
				b.Errorf("candidate %+v, want key %q", c, want[c.MessageID])
			}
		}
		if len(found) != len(want) {
			b.Errorf("%d rows", len(found))
		}
	})
}
