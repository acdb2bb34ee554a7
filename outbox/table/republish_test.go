package table

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// Only a row that is SENT, and still the one that is meant, is set back; it is due at once and the sweep finds it.
func TestRepublish(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.insert(2, "status=2, retry_count=3, next_retry_time=NOW() + INTERVAL 1 HOUR")
		for status := range 5 {
			if status != 2 {
				ids = append(ids, b.insert(1, "retry_count=3, status="+string(rune('0'+status)))...)
			}
		}
		ids[1].MessageID = "order:another"
		n, err := b.store.Republish(b.ctx, ids)
		testkit.Must(b, err)
		if n != 1 {
			b.Errorf("%d rows were set back, want 1", n)
		}
		b.want(ids[0], "0|0|NULL|canal-outbox", "status", "retry_count", "next_retry_time", "updated_by")
		b.want(ids[1], "2|3", "status", "retry_count")
		b.want(ids[2], "0|3", "status", "retry_count")
		b.want(ids[3], "1|3", "status", "retry_count")
		b.want(ids[4], "3|3", "status", "retry_count")
		b.want(ids[5], "4|3", "status", "retry_count")
	})
}

// Every layout's rows are found by the sweep again.
func TestRepublishInEachLayout(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		b.add(l, 1)
		found := b.due(DueQuery{})
		if len(found) != 1 {
			b.Fatalf("due before: %+v", found)
		}
		b.apply(outbox.Completion{Identity: found[0].Identity, Action: outbox.ActionMarkSent})
		if due := b.due(DueQuery{}); len(due) != 0 {
			b.Fatalf("due when it is SENT: %+v", due)
		}
		if n, err := b.store.Republish(b.ctx, []outbox.Identity{found[0].Identity}); n != 1 || err != nil {
			b.Errorf("%d rows set back, %v", n, err)
		}
		if due := b.due(DueQuery{}); len(due) != 1 || due[0].Identity != found[0].Identity {
			b.Errorf("due again: %+v", due)
		}
	})
}
