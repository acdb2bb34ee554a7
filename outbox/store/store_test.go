package store

import (
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// One row's way through claim, retry, claim, sent, on both presets.
func TestLifeOfARow(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		id := b.Insert(1, "headers='{\"trace\":\"1\"}', tag='paid'")[0]
		found := b.due(table.DueQuery{ExpiredClaims: time.Minute})
		if len(found) != 1 || found[0].Identity != id || found[0].Status != outbox.Pending || found[0].Topic != "orders" {
			b.Fatalf("due: %+v", found)
		}
		stamp, err := b.store.Claim(b.Ctx, found)
		testkit.Must(b, err)
		b.Want(id, "1|"+stamp+"|canal-outbox", "status", "CAST(last_exec_time AS CHAR)", "updated_by")
		messages, _, err := b.store.ReadBack(b.Ctx, stamp, []outbox.Identity{id})
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
		b.Want(id, "0|1|1|1024", "status", "retry_count",
			"TIMESTAMPDIFF(SECOND, NOW(), next_retry_time) BETWEEN 3500 AND 3600", "CHAR_LENGTH(fail_reason)")
		if found := b.due(table.DueQuery{}); len(found) != 0 {
			b.Errorf("a row that waits is due: %+v", found)
		}
		found = b.due(table.DueQuery{Horizon: 2 * time.Hour})
		if len(found) != 1 || !found[0].Waiting || found[0].DueInMilli < 3500_000 || found[0].DueInMilli > 3600_000 ||
			found[0].RetryCount != 1 {
			b.Fatalf("waiting: %+v", found)
		}
		b.apply(outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
		b.Want(id, "2|1", "status", "retry_count")
		b.apply(outbox.Completion{Identity: id, Action: outbox.ActionFail, RetryCount: 1, Reason: "late"})
		b.Want(id, "2", "status")
	})
}
