package retention

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Only rows that are final and old enough leave, each to its configured target, in each pass.
func TestOnlyOldFinalRowsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows(0, 0, 0)
		for i, status := range []outbox.Status{outbox.Pending, outbox.Sending, outbox.Sent, outbox.Failed, outbox.Held} {
			r.table[10*i+1] = &row{status: status, since: time.Now().Add(-100 * day)}
			r.table[10*i+2] = &row{status: status, since: time.Now().Add(-8 * day)}
			r.table[10*i+3] = &row{status: status, since: time.Now().Add(-7*day + 90*time.Minute)}
		}
		x, _ := begin(t, Config{Expiries: of(archive, failed)}, r)
		wait(time.Minute)
		if r.len() != 12 || !slices.Equal(r.to(table.ArchiveSuffix), []int{21, 22}) || !slices.Equal(r.to(table.FailedSuffix), []int{31}) {
			t.Fatalf("%d rows stay, %v moved", r.len(), r.to(table.ArchiveSuffix))
		}
		if x.counted(rowArchived) != 2 || x.counted(rowLogged) != 1 || x.counted(rowDeleted) != 0 {
			t.Error("they are not counted")
		}
		if s := x.State(); s.Running || s.Rows != 3 || s.Last.IsZero() || s.Error != "" {
			t.Errorf("%+v", s)
		}
		wait(2 * time.Hour) // two more passes; by the second one the row of 7 days less 90 minutes is old enough
		if !slices.Equal(r.to(table.ArchiveSuffix), []int{21, 22, 23}) {
			t.Errorf("%v moved", r.to(table.ArchiveSuffix))
		}
	})
}

// Batches are bounded, and a pause of three times its duration follows each.
func TestItLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows(1000, outbox.Sent, 8*day)
		r.page = 1000
		x, _ := begin(t, Config{Expiries: of(week), Batch: 100}, r)
		wait(time.Nanosecond)
		began := time.Now()
		for r.len() > 0 {
			wait(time.Millisecond)
		}
		if took := time.Since(began); took < 9*40*time.Millisecond || took > 11*40*time.Millisecond {
			t.Errorf("ten batches of 10 ms took %v", took)
		}
		if !slices.Equal(r.batches, slices.Repeat([]int{100}, 10)) || x.counted(rowDeleted) != 1000 {
			t.Errorf("batches of %v", r.batches)
		}
	})
}

// While the server's purge is behind, nothing leaves; status and metric say so.
func TestItWaitsForThePurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows(50, outbox.Sent, 8*day)
		r.history = append(slices.Repeat([]int64{300_000}, 60), 100)
		x, logs := begin(t, Config{Expiries: of(week)}, r)
		wait(50 * time.Second)
		if r.len() != 50 || x.State().Paused == "" || value(x.metrics.paused) != 1 {
			t.Fatalf("%d rows, %+v", r.len(), x.State())
		}
		wait(20 * time.Second)
		if r.len() != 0 || x.State().Paused != "" || value(x.metrics.paused) != 0 {
			t.Fatalf("%d rows, %+v", r.len(), x.State())
		}
		if n := logs.FilterMessageSnippet("no more old rows leave").Len(); n != 1 {
			t.Errorf("said %d times", n)
		}
		if r.asked() > 70 {
			t.Errorf("%d looks in 70 s", r.asked())
		}
	})
}

// An account that cannot read the history list causes one log line, and one query per pass: a refusal costs the pool its
// connections.
func TestItDoesWithoutTheHistoryList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows(5000, outbox.Sent, 8*day)
		r.history = nil
		_, logs := begin(t, Config{Expiries: of(week), Batch: 10}, r)
		wait(3 * time.Hour)
		if r.len() != 0 || logs.FilterMessageSnippet("PROCESS").Len() != 1 || r.asked() > 4 {
			t.Errorf("%d rows stay, logged %d times, read %d times", r.len(), logs.FilterMessageSnippet("PROCESS").Len(), r.asked())
		}
	})
}

// Rows leave in the window only, by the database's clock; a requested pass runs at any time.
func TestTheWindowIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows(1000, outbox.Sent, 8*day)
		r.page, r.took = 1000, 20*time.Minute
		x, _ := begin(t, Config{Expiries: of(week), Window: Window{2 * time.Hour, 4 * time.Hour}, Batch: 100}, r)
		wait(2*time.Hour - time.Minute)
		if r.len() != 1000 {
			t.Fatalf("%d rows at 01:59", r.len())
		}
		wait(24 * time.Hour) // batches of 20 minutes with pauses of an hour: two begin before 04:00
		if r.len() != 800 || value(x.metrics.runs.WithLabelValues(runComplete)) != 0 {
			t.Fatalf("%d rows stay after the first window", r.len())
		}
		r.set(func() { r.took = time.Millisecond })
		wait(3 * time.Minute) // 02:02 of the second day
		if r.len() != 0 || x.State().Last.IsZero() {
			t.Errorf("%d rows stay in the second window", r.len())
		}
		wait(8 * time.Hour)
		r.set(func() { r.table[7] = &row{status: outbox.Sent, since: time.Now().Add(-8 * day)} })
		x.Now()
		wait(time.Second)
		if r.len() != 0 {
			t.Error("a pass that was requested at 10:02 did nothing")
		}
	})
}

// A locked row is left to a later pass; one that the server refuses is reported, and does not affect the others.
func TestRowsThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows(10, outbox.Sent, 8*day)
		r.table[3].locked, r.table[5].bad = true, true
		x, logs := begin(t, Config{Expiries: of(week)}, r)
		wait(time.Minute)
		if r.len() != 2 || x.counted(rowSkipped) != 1 || x.counted(rowRefused) != 1 {
			t.Fatalf("%d rows stay, %v skipped, %v refused", r.len(), x.counted(rowSkipped), x.counted(rowRefused))
		}
		if lines := logs.FilterMessageSnippet("refuses to remove old rows").All(); len(lines) != 1 || lines[0].ContextMap()["reason"] != "a trigger says no" {
			t.Errorf("log: %v", lines)
		}
		r.set(func() { r.table[3].locked = false })
		wait(time.Hour)
		if r.len() != 1 {
			t.Error("the lock is gone, and the row is there")
		}
	})
}

// A database outage is logged once, and retried.
func TestErrorsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows(10, outbox.Sent, 8*day)
		r.err = errors.New("the database is away")
		x, logs := begin(t, Config{Expiries: of(week)}, r)
		wait(20 * time.Minute)
		if x.State().Error != "the database is away" || logs.FilterMessageSnippet("trying again").Len() != 1 {
			t.Errorf("%+v, %v", x.State(), logs.All())
		}
		if n := value(x.metrics.runs.WithLabelValues(runFailed)); n < 3 || n > 20 {
			t.Errorf("%v attempts in 20 minutes", n)
		}
		r.set(func() { r.err = nil })
		wait(time.Hour)
		if r.len() != 0 || x.State().Error != "" || logs.FilterMessageSnippet("leave the tables again").Len() != 1 {
			t.Errorf("%d rows, %+v", r.len(), x.State())
		}
	})
}

// Without an age nothing is queried, and the age of the last pass raises no alert.
func TestOffIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows(10, outbox.Sent, 100*day)
		x, _ := begin(t, Config{}, r)
		x.Now()
		wait(100 * time.Hour)
		if r.len() != 10 || r.asked() != 0 || x.sinceSuccess() != 0 || !x.Off() {
			t.Errorf("%d rows, %d looks", r.len(), r.asked())
		}
	})
}

func TestWindowArithmetic(t *testing.T) {
	at := func(text string) time.Duration {
		d, err := time.Parse("15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(d.Hour())*time.Hour + time.Duration(d.Minute())*time.Minute
	}
	for _, c := range []struct {
		from, to, now string
		opens, closes time.Duration
	}{
		{"02:00", "05:00", "01:30", 30 * time.Minute, 3 * time.Hour},
		{"02:00", "05:00", "02:00", 0, 3 * time.Hour},
		{"02:00", "05:00", "04:59", 0, time.Minute},
		{"02:00", "05:00", "05:00", 21 * time.Hour, 3 * time.Hour},
		{"22:00", "01:00", "23:00", 0, 2 * time.Hour},
		{"22:00", "01:00", "00:59", 0, time.Minute},
		{"22:00", "01:00", "12:00", 10 * time.Hour, 3 * time.Hour},
		{"00:00", "00:00", "12:00", 0, 24 * time.Hour},
	} {
		opens, closes := Window{at(c.from), at(c.to)}.opens(at(c.now))
		if opens != c.opens || closes != c.closes {
			t.Errorf("%s-%s at %s: opens in %v, for %v", c.from, c.to, c.now, opens, closes)
		}
	}
}

// A preview counts and changes nothing, and ends at its bound.
func TestPreview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows(950, outbox.Sent, 8*day)
		r.table[951] = &row{status: outbox.Failed, since: time.Now().Add(-31 * day)}
		counts, err := Preview(t.Context(), r, name, []table.Expiry{week, failed}, 10_000, time.Minute)
		if err != nil || counts[0].Rows != 950 || counts[1].Rows != 1 || counts[0].AtLeast || r.len() != 951 {
			t.Errorf("%+v, %v", counts, err)
		}
		counts, err = Preview(t.Context(), r, name, []table.Expiry{week, failed}, 300, time.Minute)
		if err != nil || counts[0].Rows != 300 || !counts[0].AtLeast {
			t.Errorf("%+v, %v", counts, err)
		}
	})
}
