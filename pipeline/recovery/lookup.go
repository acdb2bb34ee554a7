package recovery

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// unseen are the rows that wait for their look-up.
type unseen struct {
	waiting  []*tracker.Entry // in log order
	waitingB int              // their bytes
	ofTable  map[string]int   // how many were added of each table since the last look-up
	alike    bool             // the last look-up showed that all its rows were to be published: the next may be the same
	answers  answers          // reused from one look-up to the next
	mute     map[string]mute  // the tables that gave no answer
}

// muteAfter is how long one of several tables is waited for whose rows cannot be read: what ends soon is waited for, because rows that are left to the
// sweep lose their place in the order of the log. It is asked again as often.
const muteAfter = 10 * time.Second

// mute is a table that cannot be read though the server answers: another session has locked it, or a right is missing.
type mute struct {
	since, asked time.Time
	left         bool // rows of it were left to the sweep
}

// answers are what the tables say of the rows that wait.
type answers struct {
	ids    map[string][]outbox.Identity // of the rows, by table
	states map[outbox.Identity]*outbox.Candidate
	whole  map[string]bool // the tables whose rows are all as they were inserted
	none   map[string]bool // the tables that are not waited for
}

func newAnswers() answers {
	return answers{map[string][]outbox.Identity{}, map[outbox.Identity]*outbox.Candidate{}, map[string]bool{}, map[string]bool{}}
}

// Add takes rows of the window over, and looks them up when there are enough. Callers hold the log lock. The error is that of ctx; the
// rows are taken over all the same.
func (r *Recovery) Add(ctx context.Context, rows []*tracker.Entry) error {
	r.dispatch.Expect(rows)
	r.waiting = append(r.waiting, rows...)
	full := false
	for _, e := range rows {
		r.waitingB += e.Size
		r.ofTable[e.Row().Table]++
		full = full || r.ofTable[e.Row().Table] >= page
	}
	if full || len(r.waiting) >= maxPage || r.waitingB >= r.maxBytes {
		return r.Check(ctx)
	}
	return nil
}

// sort asks the tables, and what an earlier process has sent, and keeps the rows that are to be published. The rows of a table that cannot be read for
// some time are left to the sweep, if there are other tables: these would wait with it. Callers hold the log lock.
func (r *Recovery) sort(ctx context.Context) error {
	if err := r.lookUp(ctx); err != nil {
		return err
	}
	if err := r.withoutSent(ctx); err != nil {
		return err
	}
	if len(r.answers.none) > 0 {
		r.keep(func(e *tracker.Entry) bool {
			if !r.answers.none[e.Row().Table] {
				return true
			}
			r.dispatch.Leave(e, outbox.CauseTable)
			return false
		})
	}
	return nil
}

// keep drops the waiting rows that are settled otherwise. Callers hold the log lock.
func (r *Recovery) keep(stays func(*tracker.Entry) bool) {
	rest := r.waiting[:0]
	r.waitingB = 0
	for _, e := range r.waiting {
		if stays(e) {
			rest = append(rest, e)
			r.waitingB += e.Size
		}
	}
	clear(r.waiting[len(rest):])
	r.waiting = rest
}

// lookUp asks the tables and keeps the rows that are PENDING and due, as the fast path sees it, and those of tables that gave no answer: a row whose producer
// meant "now" is not left to the sweep because the database's clock is behind, for the process before may have sent it, and its successors would overtake it. A row that is not
// found may not be visible yet and is left to the sweep, which is triggered; every other row is settled. In a backlog whole pages are as they
// were inserted, so after one such page the tables are asked for that alone first. A row whose state cannot be read comes back as waiting and is left
// to the sweep, which reports it; the others go. Callers hold the log lock.
func (r *Recovery) lookUp(ctx context.Context) error {
	a := &r.answers
	defer clear(a.states) // which have the rows of a whole page
	clear(a.whole)
	clear(a.none)
	for name, ids := range a.ids {
		a.ids[name] = ids[:0]
	}
	for _, e := range r.waiting {
		a.ids[e.Row().Table] = append(a.ids[e.Row().Table], e.Row())
	}
	var first error
	for _, name := range slices.Sorted(maps.Keys(a.ids)) {
		if len(a.ids[name]) == 0 {
			continue
		}
		err := r.askTable(ctx, name)
		if err != nil && !server.OfOneTable(server.Code(err)) {
			return err
		}
		if first == nil { // all are asked, so that several that cannot be read are waited for together
			first = err
		}
	}
	if first != nil {
		return first
	}
	clear(r.ofTable)
	before := len(r.waiting)
	r.keep(r.settle)
	r.alike = len(r.waiting) == before
	return nil
}

// askTable asks one table for its rows. The error is one that all tables wait for.
func (r *Recovery) askTable(ctx context.Context, name string) error {
	began, before := time.Now(), r.mute[name]
	if before.left && began.Sub(before.asked) < muteAfter {
		r.answers.none[name] = true
		return nil
	}
	err := r.read(ctx, name)
	switch {
	case err == nil && before.left:
		r.log.Info("rows of the recovery window are looked up in the table again", zap.String("table", name))
		fallthrough
	case err == nil:
		delete(r.mute, name)
		return nil
	case !r.dispatch.Several() || !server.OfOneTable(server.Code(err)):
		return err
	}
	m := before
	if m.asked = time.Now(); m.since.IsZero() {
		m.since = began
	}
	if time.Since(m.since) >= muteAfter {
		if !m.left {
			r.log.Warn("cannot look up rows of the recovery window in this table: they are left to the sweep until it can be read, so that other tables do not wait",
				zap.String("table", name), zap.Error(err))
		}
		m.left, r.answers.none[name], err = true, true, nil
	}
	r.mute[name] = m
	return err
}

// read reads what the table says of its rows.
func (r *Recovery) read(ctx context.Context, name string) error {
	a := &r.answers
	if r.alike {
		untouched, err := r.checker.Untouched(ctx, a.ids[name])
		if err != nil {
			return err
		}
		if untouched {
			a.whole[name] = true
			return nil
		}
	}
	list, err := r.checker.States(ctx, a.ids[name])
	for i := range list {
		a.states[list[i].Identity] = &list[i]
	}
	return err
}

// settle reports whether a row stays, and passes it on if it does not. Callers hold the log lock.
func (r *Recovery) settle(e *tracker.Entry) (stays bool) {
	name := e.Row().Table
	state, found := r.answers.states[e.Row()]
	switch {
	case r.answers.none[name]:
		return true
	case r.answers.whole[name]:
		e.RetryCount = 0
		return true
	case !found:
		r.dispatch.Leave(e, outbox.CauseNotFound)
	case state.Status == outbox.Pending && state.Waiting && (e.Delayed || state.RetryCount > 0 || state.Postponed()):
		r.dispatch.LeaveWaiting(e, state)
		r.sweeps.DueIn(e.Row(), time.Duration(state.DueInMilli)*time.Millisecond)
	case state.Status == outbox.Pending:
		e.RetryCount = state.RetryCount
		return true
	case state.Status == outbox.Sending: // claimed by a sweep whose claim will expire
		r.dispatch.LeaveClaimed(e)
	default:
		r.dispatch.Final(e)
	}
	return false
}
