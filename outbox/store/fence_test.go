package store

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Without a valid lease attempts and failures do not get into the table, and claims are given back; that a row is sent is true all the same.
func TestG04_WithoutALeaseOnlySentIsWritten(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		valid, ids := true, b.Insert(6, "")
		b.store = New(b.store.db, []*table.Table{b.Table}, nil, func() bool { return valid })
		var claimed []outbox.Candidate
		for _, id := range ids[3:5] {
			claimed = append(claimed, outbox.Candidate{Identity: id, Status: outbox.Pending})
		}
		stamp, err := b.store.Claim(b.Ctx, claimed)
		testkit.Must(b, err)
		valid = false
		dropped := b.apply(
			outbox.Completion{Identity: ids[0], Action: outbox.ActionMarkSent},
			outbox.Completion{Identity: ids[1], Action: outbox.ActionRetry, Delay: time.Hour, Reason: "refused"},
			outbox.Completion{Identity: ids[2], Action: outbox.ActionFail, Reason: "refused"},
			outbox.Completion{Identity: ids[3], Action: outbox.ActionRetry, Claim: stamp},
			outbox.Completion{Identity: ids[4], Action: outbox.ActionRetry, Claim: "2001-01-01 00:00:00.000"}, // another relay has claimed it
		)
		for _, d := range dropped {
			if !d.Fenced || d.Retryable {
				b.Errorf("%+v", d)
			}
		}
		if len(dropped) != 4 {
			b.Errorf("%d rows were dropped, not 4", len(dropped))
		}
		columns := []string{"status", "retry_count", "next_retry_time IS NULL", "fail_reason IS NULL"}
		for n, want := range []string{"2|0|1|1", "0|0|1|1", "0|0|1|1", "0|0|1|1", "1|0|1|1"} {
			b.Want(ids[n], want, columns...)
		}
		valid = true
		if left := b.apply(outbox.Completion{Identity: ids[5], Action: outbox.ActionFail, Reason: "refused"}); len(left) > 0 {
			b.Errorf("%+v", left)
		}
		b.Want(ids[5], "3", "status")
	})
}
