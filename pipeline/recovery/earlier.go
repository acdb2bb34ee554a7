package recovery

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// Earlier finds what a process that was killed has sent and not journalled.
type Earlier interface {
	// Ready returns an error that is outbox.ErrBrokerAway while the broker does not answer. Nothing can be sent meanwhile, so rows wait for Sent.
	Ready(ctx context.Context) error
	// Sent reports for each message whether the broker has it from that process. It may read from the broker, for a bounded time.
	Sent(ctx context.Context, messages []*outbox.Message) []bool
	// Ended reports that no row that comes now can have been sent by that process.
	Ended() bool
}

// readyPause is between two questions of a sweep whether the broker answers.
const readyPause = time.Second

// withoutSent completes the waiting rows that an earlier process has sent; the others stay. The error is that of ctx or outbox.ErrBrokerAway, and
// then nothing is known of them. Callers hold the log lock.
func (r *Recovery) withoutSent(ctx context.Context) error {
	r.asking.Store(r.earlier != nil && len(r.waiting) > 0)
	if !r.asking.Load() {
		return nil
	}
	messages := make([]*outbox.Message, len(r.waiting))
	for i, e := range r.waiting {
		messages[i] = e.Message
	}
	if err := r.earlier.Ready(ctx); err != nil {
		return err
	}
	sent := r.earlier.Sent(ctx, messages)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.asking.Store(false)
	i := -1
	r.keep(func(e *tracker.Entry) bool {
		i++
		if sent[i] {
			r.dispatch.Found(e)
			return false
		}
		return true
	})
	return nil
}

// SentBefore puts rows of the sweep first that an earlier process may have sent and has, and returns their number. The others stay in their
// order. The error is that of ctx, and then nothing is known of them.
func (r *Recovery) SentBefore(ctx context.Context, rows []*outbox.Message) (int, error) {
	if r.earlier == nil {
		return 0, nil
	}
	var asked []*outbox.Message
	for _, m := range rows {
		if maySent(m.Path, m.Status, m.Untouched) && tracker.Of(m.Entry) != nil {
			asked = append(asked, m)
		}
	}
	if len(asked) == 0 {
		return 0, nil
	}
	for r.earlier.Ready(ctx) != nil && outbox.Wait(ctx, readyPause, nil) {
	}
	sent := r.earlier.Sent(ctx, asked)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	first, rest := make([]*outbox.Message, 0, len(rows)), make([]*outbox.Message, 0, len(rows))
	next := 0
	for _, m := range rows {
		may := next < len(asked) && asked[next] == m
		before := may && sent[next]
		if may {
			next++
		}
		if before {
			first = append(first, m)
		} else {
			rest = append(rest, m)
		}
	}
	copy(rows[copy(rows, first):], rest)
	return len(first), nil
}

// Kept are the claimed rows among those that a stop gives back that an earlier process may have sent: a claim that is released would leave no sign of
// that for the next start.
func (r *Recovery) Kept(rows []outbox.Candidate) (kept, rest []outbox.Candidate) {
	if r.earlier == nil || r.earlier.Ended() {
		return nil, rows
	}
	for _, c := range rows {
		if maySent(outbox.PathSweep, c.Status, c.Untouched) {
			kept = append(kept, c)
		} else {
			rest = append(rest, c)
		}
	}
	return kept, rest
}

// maySent reports whether the sweep has a row that another process may have sent: it had claimed it, or it had it from the log and its journal is
// on another machine. A row that shows an earlier status may be one that a person has set back, and is sent.
func maySent(path outbox.Path, status outbox.Status, untouched bool) bool {
	return path != outbox.PathRedelivery && (status == outbox.Sending || untouched)
}
