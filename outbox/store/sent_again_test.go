package store

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// In every layout the rows that are SENT for long enough are found and read whole, and nothing of them changes; only rows that are SENT, and
// still the ones that are meant, are marked as done, where consumers have a state for it.
func TestSentRowsGoOutAgain(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		if l.Name == "binary" { // which has no time
			return
		}
		m := tabletest.MappingOf(b.Bench, l)
		m.Redeliver = table.Redeliver{After: time.Hour, Until: "consumed", Max: 3}
		if l.Codes["consumed"] == "" { // the table's load refuses it
			b.store.bound[0].Mapping().Redeliver = m.Redeliver
		} else {
			b.LoadAsIs(m)
		}
		ids := map[int]outbox.Identity{}
		for n, last := range map[int]string{1: "2 HOUR", 2: "2 HOUR", 3: "1 MINUTE", 4: "2 HOUR"} {
			b.Add(l, n)
			for _, c := range b.due(table.DueQuery{}) {
				if c.MessageID == l.MessageID(n) {
					ids[n] = c.Identity
				}
			}
			status := "sent"
			if n == 4 {
				status = "pending"
			}
			b.times(l, n, status, last, last)
		}
		found := b.final(outbox.Sent, time.Hour)
		if len(found) != 2 {
			b.Fatalf("found %v", found)
		}
		other := ids[3]
		other.MessageID += "x"
		messages, err := b.store.ReadSent(b.Ctx, append(found, ids[4], other))
		testkit.Must(b, err)
		if len(messages) != 2 {
			b.Fatalf("%d messages", len(messages))
		}
		for _, m := range messages {
			if m.Path != outbox.PathRedelivery || m.Topic != "orders" || len(m.Body) == 0 || !m.DueAt.IsZero() || m.Claim != "" {
				b.Errorf("%+v", m)
			}
		}
		if again := b.final(outbox.Sent, time.Hour); len(again) != 2 {
			b.Errorf("then %v", again)
		}
		n, err := b.store.MarkDone(b.Ctx, []outbox.Identity{ids[1], ids[4], other})
		testkit.Must(b, err)
		if l.Codes["consumed"] == "" {
			if n != 0 {
				b.Errorf("%d rows were marked", n)
			}
			return
		}
		if n != 1 {
			b.Errorf("%d rows were marked", n)
		}
		for n, status := range map[int]string{1: "consumed", 2: "sent", 3: "sent", 4: "pending"} {
			b.WantStatus(l, n, status)
		}
	})
}
