package pipeline

import (
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// This file is the side of the flow for rows that the log did not bring: eight methods of the sweep, two more of rows that go out again.

// Generation counts how often the position was set elsewhere. The sweep reads it before the end of the log.
func (p *Pipeline) Generation() uint64 { return p.tracker.Generation() }

// AwaitLog waits until every transaction of the log up to end was offered. A reader that makes no progress is not waited for beyond
// patience: then the log's rows up to end are looked up before they are published. The error is outbox.ErrBrokerAway while the
// broker takes no messages, outbox.ErrPaused while an operator has stopped the intake, sink.ErrMayNot while this relay may not publish,
// outbox.ErrMoved when the position was set elsewhere since the end was read, else that of ctx.
func (p *Pipeline) AwaitLog(ctx context.Context, end outbox.LogEnd, patience time.Duration) error {
	return p.recovery.AwaitLog(ctx, end, patience)
}

// Shown reports whether rows of the log up to end need not be waited for: the log was offered up to there, or its rows are looked up before
// they are published. The error is that of AwaitLog.
func (p *Pipeline) Shown(end outbox.LogEnd) (bool, error) { return p.recovery.Shown(end) }

// Reserve takes ownership for the sweep. free are the rows that had no owner, each with its entry. suspended are the rows that
// the sweep must skip: of suspended topics, and those whose key waits for an earlier row.
func (p *Pipeline) Reserve(rows []outbox.Candidate) (free, suspended []outbox.Candidate) {
	free, suspended = p.dispatch.Reserve(rows)
	if len(suspended) > 0 {
		p.mu.Lock()
		p.quiet.suspended = true
		p.mu.Unlock()
	}
	return free, suspended
}

// Release gives rows back that were reserved and not published.
func (p *Pipeline) Release(rows []outbox.Candidate) { p.tracker.Release(rows) }

// Return gives rows back that were reserved and claimed and not published: their claims are released, no attempt is counted. Rows that a killed
// process may have sent keep their claims: the next start looks for them when these expire.
func (p *Pipeline) Return(rows []outbox.Candidate, claim string) {
	kept, rest := p.recovery.Kept(rows)
	p.tracker.Release(kept)
	p.dispatch.Return(rest, claim)
}

// Takes reports whether a sweep would publish now: the broker takes messages, and no operator has stopped the intake.
func (p *Pipeline) Takes() bool {
	_, err := p.recovery.Shown(outbox.LogEnd{}) // where nothing is to be waited for
	return err == nil
}

// SetBack gives rows back that were reserved and that the table shows as PENDING now, and asks for a sweep, which publishes them.
func (p *Pipeline) SetBack(rows []outbox.Candidate) {
	p.tracker.Activity.Disturb() // first: activity changes before the rows have no owner
	p.dispatch.SetBack(rows)
	p.sweeps.Trigger()
}

// Publish hands rows to the sink that were reserved, claimed and read back; each message carries the entry of its candidate. It waits
// while the sweep has its share of what may be in flight. rejected are completions on claimed rows that cannot become a message; they
// are taken over first, and so are rows that a killed process has claimed and sent: rows is put into that order. It returns how many
// messages it took over, the first ones, and the error of ctx. The rest is released by the caller.
func (p *Pipeline) Publish(ctx context.Context, rows []*outbox.Message, rejected []outbox.Completion) (taken int, err error) {
	for i := range rejected {
		p.dispatch.Reject(rejected[i])
	}
	sent, err := p.recovery.SentBefore(ctx, rows)
	if err != nil {
		return 0, err
	}
	entries := make([]*tracker.Entry, 0, len(rows))
	for i, m := range rows {
		e, ok := p.tracker.ReadBack(m)
		switch {
		case ok && i < sent:
			p.dispatch.Found(e)
		case ok:
			entries = append(entries, e)
		}
	}
	for len(entries) > 0 {
		n, err := p.dispatch.Publish(ctx, entries)
		if err != nil {
			return slices.Index(rows, entries[0].Message), err
		}
		entries = entries[n:]
	}
	return len(rows), nil
}

// Swept is called after a complete sweep over all tables. A row that the log never showed looks like any other row of the table.
// It is known by exclusion: nothing else left a row PENDING, without a due time, not tried and without an owner.
//
// Such a row that the log did show was deferred or refused, and the activity has changed. A sweep over rows of any age that
// begins afterwards finds it, however old the row says it is. It finds it later only if the server shows a commit later than it logs
// it; so the exclusion needs time as well.
func (p *Pipeline) Swept(s outbox.Sweep) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet.swept(s, p.tracker.Activity.Count(), time.Now()) {
		p.missed.Add(float64(s.Untried))
	}
}

// lateCommit is how long a server may take to show what it has logged: more than a semi-synchronous source waits for its replica by
// default.
const lateCommit = 15 * time.Second

// quiet remembers since when nothing else explains a row that a sweep finds.
type quiet struct {
	activity  uint64
	since     time.Time // activity has had this value since
	clean     bool      // a sweep over rows of any age began after that, was complete and left no row alone
	suspended bool      // rows were left alone since the last sweep
}

func newQuiet(activity uint64) quiet { return quiet{activity: activity, since: time.Now()} }

// swept draws the conclusion from a sweep that was complete: whether its untried rows were never shown by the log.
func (q *quiet) swept(s outbox.Sweep, activity uint64, now time.Time) (missed bool) {
	suspended := q.suspended
	q.suspended = false
	switch {
	case activity != q.activity:
		*q = quiet{activity: activity, since: now}
	case suspended:
		q.clean = false
	case s.AnyAge:
		q.clean = true
	default:
		return q.clean && s.Began.Sub(q.since) >= s.Within+lateCommit
	}
	return false
}
