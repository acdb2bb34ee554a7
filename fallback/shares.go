package fallback

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

const (
	// share is how long the list of one of several tables is worked off before those of the others continue.
	share = time.Second
	// relist is how soon a table whose list was worked off is listed again while those of others are not. One that had nothing to publish, or failed, is
	// left alone this many times as long as that took: a locked table fails after two seconds, and an index may be missing. Several such tables share
	// that part of the time, see pause.
	relist, relistTimes = 5 * time.Second, 10
)

// list is one list of the due rows of a table, in a sweep; a sweep may list a table more than once. Timers use it for the rows of a pass.
type list struct {
	*run
	name string

	query   table.DueQuery
	at      table.Cursor
	replica bool // it is read on the replica
	batches *batches
	began   time.Time
	first   bool            // the table has not been swept to the end yet
	orphans map[string]bool // see claims
	claimed int             // claimed rows that were found and not handed over. Guarded by run.mu
	held    bool            // a claim of an earlier process could not be taken over: the row was owned
}

// swept is a table of a sweep.
type swept struct {
	name  string
	list  *list         // nil: not begun, or at its end
	ended time.Time     // of its last list; zero before
	pause time.Duration // until the next list
	err   error         // of that list
	done  bool          // it was listed to the end
}

// next reports whether the table gets a share now.
func (t *swept) next(now time.Time) bool {
	return t.list != nil || now.Sub(t.ended) >= max(relist, t.pause)
}

// sweep lists all tables, and works their lists off alternately, so that a backlog of one delays the rows of another by a share and not by the time that
// it takes. A table is listed again meanwhile, because rows may be left to the sweep at any time. A table that fails does not prevent the others, and
// has failed if its last list did.
func (s *Sweeper) sweep(ctx context.Context, r *run) error {
	tables := make([]swept, len(s.cfg.Tables))
	for i, name := range s.cfg.Tables {
		tables[i].name = name
	}
	useReplica := s.cfg.Replica != nil && !r.zero && s.replica.next()
	for i, open := 0, len(tables); open > 0; i = (i + 1) % len(tables) {
		t := &tables[i]
		if !t.next(time.Now()) {
			continue
		}
		if t.list == nil {
			t.list = s.newList(r, t.name, useReplica, t.done)
		}
		began, published := time.Now(), r.sum()
		err := s.workShare(ctx, t.list, len(tables) > 1)
		if notNow(err) || ctx.Err() != nil {
			return err
		}
		if err == nil && !t.list.at.Done() {
			continue
		}
		if t.ended.IsZero() {
			open--
		}
		s.ended(t.list, err)
		t.list, t.ended, t.err, t.done = nil, time.Now(), err, t.done || err == nil
		if t.pause = 0; r.sum() == published {
			t.pause = pause(tables, t.ended.Sub(began))
		}
	}
	r.cut = slices.ContainsFunc(tables, func(t swept) bool { return t.list != nil })
	return failures(tables)
}

// pause is how long a table is left alone whose last list took so long for nothing; the more tables that is true of, the longer.
func pause(tables []swept, took time.Duration) time.Duration {
	times := relistTimes
	for _, t := range tables {
		if t.pause > relist {
			times += relistTimes
		}
	}
	return time.Duration(times) * took
}

// failures is the first error of a table, with the number of the others.
func failures(tables []swept) (err error) {
	more := -1
	for _, t := range tables {
		if t.err == nil {
			continue
		}
		if more++; err == nil {
			err = fmt.Errorf("%s: %w", t.name, t.err)
		}
	}
	if more > 0 {
		return fmt.Errorf("%w (and %d more tables)", err, more)
	}
	return err
}

// newList begins a list. Once a table was listed to the end, again, it is listed without threshold if a sweep without it is requested.
func (s *Sweeper) newList(r *run, name string, useReplica, again bool) *list {
	l := &list{run: r, name: name, replica: useReplica, batches: newBatches(s.cfg.Workers, s.cfg.alone(name)), began: time.Now()}
	// Where the age of a row is unknown the query returns young rows too. The position rule, not the age, decides whether a row
	// is published; the age only saves the check of rows of the binlog path.
	l.query = table.DueQuery{
		Threshold: s.cfg.Threshold, Horizon: -overdue, ExpiredClaims: s.cfg.ClaimTimeout, Limit: s.cfg.pageRows(),
	}
	if !again && r.zero || again && s.triggers.pending() {
		l.query.Threshold = 0
	}
	if l.first, l.orphans = s.claims.begin(name); l.first || len(l.orphans) > 0 {
		l.query.ExpiredClaims = 0 // no other relay is active: a claim that is not owned here is of a process that has ended, or an orphan
		l.replica = false
	}
	return l
}

// workShare works a list off, to its end or until its share is over. No batch runs afterwards, so that there are never more than those of one table.
func (s *Sweeper) workShare(ctx context.Context, l *list, limited bool) error {
	err := s.work(ctx, l, limited)
	return cmp.Or(l.batches.wait(), err)
}

// work reads the due rows of a table, page by page. The first page is one batch, so that its rows are sent soon. Where batches
// overlap later pages have several, because each page costs a query, a query for the end of the log and a wait for the reader. On
// MariaDB only a heartbeat shows that the reader has passed our own writes.
func (s *Sweeper) work(ctx context.Context, l *list, limited bool) error {
	for began := time.Now(); !l.at.Done() && !(limited && time.Since(began) >= share); {
		asked := time.Now()
		page, next, err := s.due(ctx, l)
		if err != nil && l.replica && ctx.Err() == nil {
			s.replica.failed(err)
			l.replica, l.at = false, table.Cursor{} // again on the primary: what was published meanwhile is no longer due
			continue
		}
		if err != nil {
			return err
		}
		l.onReplica = l.onReplica || l.replica
		before := l.sum()
		if err := s.takePage(ctx, l, asked, page); err != nil {
			return err
		}
		if err := s.pace(ctx, asked, l.sum()-before); err != nil {
			return err
		}
		l.at = next
		if !l.batches.alone {
			l.query.Limit = min(2*l.query.Limit, listed*s.cfg.Batch)
		}
	}
	if l.replica && l.at.Done() {
		s.replica.answered()
	}
	return nil
}

func (s *Sweeper) due(ctx context.Context, l *list) ([]outbox.Candidate, table.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if l.replica {
		return s.cfg.Replica.Due(ctx, l.name, l.at, l.query)
	}
	return s.rows.Due(ctx, l.name, l.at, l.query)
}

// ended records the end of a list.
func (s *Sweeper) ended(l *list, err error) {
	s.triggers.timers[l.name].swept(err == nil, time.Now())
	if err == nil {
		l.swept++
		s.claims.done(l.name, l.orphans, l.held, l.claimed == 0 && !l.onReplica, l.began)
	}
}
