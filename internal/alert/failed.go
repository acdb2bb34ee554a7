package alert

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// byApplication is the class of a row that another program than the relay has set to FAILED.
const byApplication = "application"

// MaxListed is how many FAILED rows of a table are looked at: where a table has more, rows of other programs are not reported.
const MaxListed = 1000

// failedOf is what is known of the FAILED rows of a table.
type failedOf struct {
	count int64                        // at the last look
	seen  map[outbox.Identity]struct{} // FAILED at the last look, and accounted for; nil before the first
	ours  map[outbox.Identity]struct{} // FAILED by the relay, and not in a listing yet
	other map[outbox.Identity]struct{} // in one listing, and not of the relay as far as it is known
	away  bool                         // the last listing failed
}

func (a *Alerter) of(table string) *failedOf {
	f := a.tables[table]
	if f == nil {
		f = &failedOf{ours: map[outbox.Identity]struct{}{}}
		a.tables[table] = f
	}
	return f
}

// own remembers that the relay has set a row to FAILED. Callers hold mu.
func (a *Alerter) own(id outbox.Identity) {
	f := a.of(id.Table)
	if len(f.ours) >= maxRetried { // more than a listing shows
		clear(f.ours)
	}
	f.ours[id] = struct{}{}
}

// lookAtFailed reports the FAILED rows that the relay has not set. It lists a table when its count has changed, and once more before it
// reports: the table shows a row as FAILED shortly before the relay's own account has it. The rows of the first look are no news.
func (a *Alerter) lookAtFailed(ctx context.Context, tables []Table) {
	if a.cfg.Failed == nil || a.cfg.Webhook == "" {
		return
	}
	for _, t := range tables {
		a.mu.Lock()
		f := a.of(t.Table)
		same := f.seen != nil && f.count == t.Failed && len(f.other) == 0
		a.mu.Unlock()
		if same {
			continue
		}
		rows, err := a.cfg.Failed(ctx, t.Table)
		if err != nil && !f.away && ctx.Err() == nil {
			a.log.Warn("cannot list FAILED rows: those that another program has set are reported later", zap.String("table", t.Table), zap.Error(err))
		}
		if f.away = err != nil; f.away {
			continue
		}
		a.mu.Lock()
		a.compare(f, t.Failed, rows)
		a.mu.Unlock()
	}
}

// compare finds the rows of a listing that the relay has not set. Callers hold mu.
func (a *Alerter) compare(f *failedOf, count int64, rows []Row) {
	first, before, other := f.seen == nil, f.seen, f.other
	f.count, f.seen, f.other = count, map[outbox.Identity]struct{}{}, map[outbox.Identity]struct{}{}
	for _, r := range rows {
		id := outbox.Identity{Table: r.Table, ID: r.ID, MessageID: r.MessageID}
		_, known := before[id]
		_, ours := f.ours[id]
		_, again := other[id]
		delete(f.ours, id)
		switch {
		case first, known, ours:
			f.seen[id] = struct{}{}
		case again:
			f.seen[id] = struct{}{}
			r.Class = byApplication
			a.tell(r)
		default:
			f.other[id] = struct{}{}
		}
	}
	if len(rows) >= MaxListed { // what a later listing has in addition may be as old
		f.seen, f.other = nil, nil
	}
}

// Day is what a digest counts.
type Day struct {
	Since  time.Time `json:"since"`
	Failed int       `json:"failed"`
	Again  int       `json:"again"` // rows that had failed before and were tried again slowly
}

// Memory keeps a Day over a restart.
type Memory interface {
	Day() (Day, error) // the zero Day before the first KeepDay
	KeepDay(Day) error
}

// recall begins with what Memory has.
func (a *Alerter) recall() {
	day := Day{}
	if a.cfg.Memory != nil {
		var err error
		if day, err = a.cfg.Memory.Day(); err != nil {
			a.log.Warn("cannot read the counts of the digest: they begin with this start", zap.Error(err))
			day = Day{}
		}
	}
	if day.Since.IsZero() {
		day.Since = time.Now().UTC()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	day.Failed, day.Again = day.Failed+a.day.Failed, day.Again+a.day.Again // what failed before this
	a.day = day
}

// keep writes the counts down when they have changed. A kill loses those of the last seconds.
func (a *Alerter) keep() {
	a.mu.Lock()
	day := a.day
	same := day == a.kept
	a.mu.Unlock()
	if same || a.cfg.Memory == nil {
		return
	}
	if err := a.cfg.Memory.KeepDay(day); err != nil {
		a.log.Warn("cannot keep the counts of the digest: after a restart they begin at zero", zap.Error(err))
		return
	}
	a.mu.Lock()
	a.kept = day
	a.mu.Unlock()
}
