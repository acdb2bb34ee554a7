package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// recall fills in what the table does not say of a row.
func (s *tables) recall(t *mapped, c *outbox.Candidate, now time.Time) {
	if c.Status != outbox.Pending && t.Has(table.RetryCount) {
		return
	}
	w, ok := s.waits.Wait(c.Identity)
	if !ok {
		return
	}
	if !t.Has(table.RetryCount) {
		c.RetryCount = w.Attempts
	}
	wait := w.Due.Sub(now)
	if c.Status == outbox.Pending && (!t.Has(table.NextRetryTime) || wait.Milliseconds() > c.DueInMilli) {
		c.Waiting, c.DueInMilli = wait > earlyMicros*time.Microsecond, (wait + time.Millisecond - 1).Milliseconds()
	}
}

// keep notes the waits of rows that are to be tried again, before the table shows the attempt: a row whose attempt is counted
// and whose wait is lost would be tried at once.
func (s completions) keep(ctx context.Context, t *mapped, action outbox.Action, rows []outbox.Completion) error {
	if !t.triesAgain(action) {
		return nil
	}
	if !t.KeepsWaits() {
		if back, err := s.setBackWithin(ctx, t, longestDelay(rows)); err != nil || !back {
			return err
		}
	}
	now, put := time.Now(), make([]table.Waiting, len(rows))
	for i, row := range rows {
		put[i] = table.Waiting{Identity: row.Identity, Wait: table.Wait{Due: now.Add(row.Delay), Attempts: row.RetryCount + 1}}
	}
	if err := s.waits.Keep(put, nil); err != nil {
		return fmt.Errorf("keep the waits of %d rows: %w", len(rows), err)
	}
	return nil
}

func longestDelay(rows []outbox.Completion) (longest time.Duration) {
	for i := range rows {
		longest = max(longest, rows[i].Delay)
	}
	return longest
}

const (
	zoneAhead = 48 * time.Hour // within which a change of a zone is looked for
	zoneEvery = time.Hour      // how often, while there is none
)

// setBackWithin reports whether the clock of the due time's zone is set back within a time, as it is when summer time ends. A local time of the
// hour that comes twice then looks as if it had passed: the wait of such a row is kept in memory, too.
func (s completions) setBackWithin(ctx context.Context, t *mapped, d time.Duration) (bool, error) {
	if d <= zoneAhead-zoneEvery && time.Now().UnixNano() < t.steady.Load() {
		return false, nil
	}
	ahead := max(d, zoneAhead)
	zone := t.ZoneOf(table.NextRetryTime)
	local := func(at string) string { return "CONVERT_TZ(" + at + ", '+00:00', " + zone + ")" }
	query := table.Text("SELECT COALESCE(TIMESTAMPDIFF(SECOND, ", local("UTC_TIMESTAMP()"), ", ", local("UTC_TIMESTAMP() + INTERVAL "+seconds(d)+" SECOND"), "), ", seconds(d), "), ",
		"COALESCE(TIMESTAMPDIFF(SECOND, ", local("UTC_TIMESTAMP()"), ", ", local("UTC_TIMESTAMP() + INTERVAL "+seconds(ahead)+" SECOND"), "), ", seconds(ahead), ")")
	var passed, passedAhead int64
	if err := query.One(ctx, s.db, &passed, &passedAhead); err != nil {
		return false, fmt.Errorf("look for a change of the time zone of %s: %w", t.Name(), err)
	}
	if passedAhead == int64(ahead/time.Second) {
		t.steady.Store(time.Now().Add(zoneEvery).UnixNano())
	}
	return passed < int64(d/time.Second), nil
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// forget drops the waits of rows that are final.
func (s completions) forget(t *mapped, action outbox.Action, rows []outbox.Completion) error {
	if action == outbox.ActionRelease || t.triesAgain(action) {
		return nil
	}
	var drop []outbox.Identity
	for i := range rows {
		if _, waits := s.waits.Wait(rows[i].Identity); waits {
			drop = append(drop, rows[i].Identity)
		}
	}
	if len(drop) == 0 {
		return nil
	}
	return s.waits.Keep(nil, drop)
}
