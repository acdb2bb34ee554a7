package recovery

import (
	"context"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// Earlier knows what a process that was killed has sent and not journalled.
type Earlier interface {
	// Sent reports for each message whether the broker has it from that process. It may read from the broker, for a bounded time.
	Sent(ctx context.Context, messages []*outbox.Message) []bool
}

// withoutSent completes the waiting rows that an earlier process has sent; the others stay. The error is that of ctx, and then nothing
// is known of them. Callers hold the log lock.
func (r *Recovery) withoutSent(ctx context.Context) error {
	if r.earlier == nil || len(r.waiting) == 0 {
		return nil
	}
	messages := make([]*outbox.Message, len(r.waiting))
	for i, e := range r.waiting {
		messages[i] = e.Message
	}
	sent := r.earlier.Sent(ctx, messages)
	if err := ctx.Err(); err != nil {
		return err
	}
	rest := r.waiting[:0]
	r.waitingB = 0
	for i, e := range r.waiting {
		if sent[i] {
			r.dispatch.Found(e)
			continue
		}
		rest = append(rest, e)
		r.waitingB += e.Size
	}
	clear(r.waiting[len(rest):])
	r.waiting = rest
	return nil
}

// SentBefore puts rows of the sweep first whose claims were taken over and that an earlier process has sent, and returns their number. The
// others stay in their order.
func (r *Recovery) SentBefore(ctx context.Context, rows []*outbox.Message) int {
	if r.earlier == nil {
		return 0
	}
	var claimed []*outbox.Message
	for _, m := range rows {
		if takenOver(m) {
			claimed = append(claimed, m)
		}
	}
	if len(claimed) == 0 {
		return 0
	}
	sent := r.earlier.Sent(ctx, claimed)
	first, rest := make([]*outbox.Message, 0, len(rows)), make([]*outbox.Message, 0, len(rows))
	next := 0
	for _, m := range rows {
		before := takenOver(m) && sent[next]
		if takenOver(m) {
			next++
		}
		if before {
			first = append(first, m)
		} else {
			rest = append(rest, m)
		}
	}
	copy(rows[copy(rows, first):], rest)
	return len(first)
}

// takenOver reports whether another process has claimed a row before the sweep has.
func takenOver(m *outbox.Message) bool {
	return m.Path != outbox.PathRedelivery && m.Status == outbox.Sending && tracker.Of(m.Entry) != nil
}
