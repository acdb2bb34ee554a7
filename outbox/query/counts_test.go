package query

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
)

// counts analyzes the table, so that the server's estimate is of now, and samples it.
func (b *bench) counts() Counts {
	b.Helper()
	testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
	counts, err := b.store.Counts(b.Ctx)
	testkit.Must(b, err)
	if len(counts) != 1 || counts[0].Table != b.table.Name() || time.Since(counts[0].At).Abs() > time.Minute {
		b.Fatalf("counts %+v", counts)
	}
	return counts[0]
}

// A sample says the same whatever index the table has.
func TestCounts(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) { b.checkCounts() })
	for _, layout := range tabletest.IndexLayouts {
		if !layout.NoDue && layout.Key == "" {
			t.Run(layout.Name, func(t *testing.T) {
				onBoth(t, "outbox", func(b *bench) {
					b.Reindex(layout)
					b.checkCounts()
				})
			})
		}
	}
}

func (b *bench) checkCounts() {
	b.Helper()
	b.Insert(4, "created_at=NOW(3) - INTERVAL 10 MINUTE, next_retry_time=NOW(3) - INTERVAL 1 MINUTE")
	b.Insert(3, "status=1, created_at=NOW(3) - INTERVAL 1 DAY, last_exec_time=NOW(3) - INTERVAL 5 MINUTE")
	b.Insert(5, "status=2, created_at=NOW(3) - INTERVAL 1 DAY")
	b.Insert(2, "status=3, created_at=NOW(3) - INTERVAL 1 DAY")
	b.Insert(1, "created_at=NOW(3) - INTERVAL 1 DAY, next_retry_time=NOW(3) + INTERVAL 1 DAY")
	b.Insert(1, "next_retry_time=NOW(3) + INTERVAL 6 HOUR, retry_count=1")
	c := b.counts()
	want := map[outbox.Status]int64{outbox.Pending: 4, outbox.Sending: 3, outbox.Sent: 5, outbox.Failed: 2, outbox.Held: 0}
	if fmt.Sprint(c.Rows) != fmt.Sprint(want) || c.Delayed != 2 {
		b.Errorf("counts %+v, want %v and two delayed ones", c, want)
	}
	about := func(what string, got, want time.Duration) {
		b.Helper()
		if got < want-time.Minute/2 || got > want+time.Minute {
			b.Errorf("%s: %v, want about %v", what, got, want)
		}
	}
	about("the oldest first attempt became due a minute ago", c.OldestPending, time.Minute)
	about("the oldest claim", c.OldestSending, 5*time.Minute)
	about("the retry that waits longest, not the delayed row", c.LongestRetry, 6*time.Hour)
	shown, err := server.Show(b.Ctx, b.DB, c.SelectFailed)
	if err != nil || len(shown) != 2 || shown[0]["id"] <= shown[1]["id"] || shown[0]["message_body"] != "" {
		b.Errorf("%s shows %v, %v", c.SelectFailed, shown, err)
	}
	if c.CreatedAhead != 0 {
		b.Errorf("no row was made ahead of the clock, the newest %v", c.CreatedAhead)
	}
	testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET retry_count=1 WHERE status=0 AND next_retry_time < NOW()")
	about("after a retry the age is since the row was made", b.counts().OldestPending, 10*time.Minute)
}

// Where the index does not tell rows that are due from those that are due later, a sample looks at the first of both, and says so.
func TestCountsThatLookAtTheFirstPendingRows(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.Reindex(tabletest.IndexLayout{Name: "status", Columns: "status"})
		b.InsertMany(2000)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET next_retry_time=NOW(3) + INTERVAL IF(id % 2, 1, -1) HOUR, retry_count=1")
		b.store.maxCount = 1000
		c := b.counts()
		if c.Rows[outbox.Pending] != 500 || c.Delayed != 500 || c.Kind(outbox.Pending) != AtLeast {
			b.Errorf("%d are due, %d later, %s", c.Rows[outbox.Pending], c.Delayed, c.Kind(outbox.Pending))
		}
		if n := c.Rows[outbox.Sent]; n > 100 {
			b.Errorf("%d rows count as sent, there is none", n)
		}
		b.store.maxCount = 10_000
		c = b.counts()
		if c.Rows[outbox.Pending] != 1000 || c.Delayed != 1000 || c.Kind(outbox.Pending) != Exact {
			b.Errorf("%d are due, %d later, %s", c.Rows[outbox.Pending], c.Delayed, c.Kind(outbox.Pending))
		}
	})
}

// With a key that is no number the newest row is found by its time, where the index has it.
func TestNewestRowWithAKeyOfText(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.Insert(3, "")
		ahead := b.Insert(1, "created_at=NOW(3) + INTERVAL 8 HOUR")[0]
		b.Insert(12, "status=2")
		b.Reindex(tabletest.IndexLayout{Name: "created", Columns: "status, created_at", Key: "VARCHAR(64)"})
		f, err := CheckClock(b.Ctx, b.DB, b.Table)
		if testkit.Must(b, err); f.Severity != server.Warning || !strings.Contains(f.What, "id "+ahead.ID+")") {
			b.Errorf("found %+v", f)
		}
		testkit.Exec(b, b.DB, "DELETE FROM "+b.Quoted+" WHERE id='"+ahead.ID+"'")
		if f, err = CheckClock(b.Ctx, b.DB, b.Table); err != nil || f.Severity != server.OK {
			b.Errorf("without that row: %+v, %v", f, err)
		}
	})
}

// Rows in states that are not ours were counted as SENT.
func TestHeldRowsAreNotCountedAsSent(t *testing.T) {
	words := map[outbox.Status]string{outbox.Pending: "pending", outbox.Sending: "sending", outbox.Sent: "sent", outbox.Failed: "failed"}
	for name, c := range map[string]struct {
		alter string
		codes map[outbox.Status]string
		held  []string
	}{
		"numbers":                {"", nil, []string{"9", "100", "4"}},
		"words":                  {"MODIFY status VARCHAR(16) NOT NULL DEFAULT 'pending'", words, []string{"'suspended'", "'consumed'", "''"}},
		"words that may be NULL": {"MODIFY status VARCHAR(16) DEFAULT 'pending'", words, []string{"'suspended'", "'zzz'", "NULL"}},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				m := b.Mapping("outbox")
				sent := "2"
				if c.codes != nil {
					testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" "+c.alter)
					m.Codes, sent = c.codes, "'sent'"
				}
				b.Load(m)
				for _, code := range c.held {
					b.Insert(2, "status="+code)
				}
				b.Insert(3, "status="+sent)
				got := b.counts()
				if shown, err := server.Show(b.Ctx, b.DB, got.SelectFailed); err != nil || len(shown) != 0 {
					b.Errorf("%s shows %v, %v", got.SelectFailed, shown, err)
				}
				if got.Rows[outbox.Held] != 6 || got.Rows[outbox.Sent] != 3 || got.Kind(outbox.Held) != Exact || got.Kind(outbox.Sent) != Estimate {
					b.Errorf("counts %+v", got)
				}
			})
		})
	}
}

// A count ends at its limit, and what lies beyond is not taken for SENT either.
func TestCountsThatEndAtTheLimit(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.InsertMany(6000)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=IF(id <= 100, 2, 9)")
		b.store.maxCount = 1000
		c := b.counts()
		if c.Rows[outbox.Held] != 1000 {
			b.Errorf("held %d", c.Rows[outbox.Held])
		}
		if n := c.Rows[outbox.Sent]; n == 0 || n > 1000 {
			b.Errorf("%d rows count as sent, there are 100 of 6000", n)
		}
		c.Rows[outbox.Held] = table.MaxCount
		if kind := c.Kind(outbox.Held); kind != AtLeast {
			b.Errorf("a count at its limit is %s", kind)
		}
	})
}

// Every query of a sample reads a part of the status index, in its order.
func TestAccessPathsOfCounts(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.InsertMany(3000)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=2, next_retry_time=created_at WHERE id <= 2700")
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=9 WHERE id > 2990")
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=1 WHERE id BETWEEN 2950 AND 2990")
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET next_retry_time=NOW(3) + INTERVAL 1 HOUR WHERE id BETWEEN 2900 AND 2949")
		testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
		order := " ORDER BY next_retry_time DESC, id DESC"
		for name, s := range map[string]*table.Statement{
			"due": b.table.sample("1", b.table.whereDue(), ""), "due in order": b.table.sample("id", b.table.whereDue(), " ORDER BY next_retry_time, id"),
			"delayed": b.table.sample("1", b.table.whereDelayed(), ""), "delayed in order": b.table.sample("id", b.table.whereDelayed(), order),
			"sending": b.table.sample("1", b.table.whereStatus(outbox.Sending), ""), "held": b.table.sample("1", b.table.whereHeld(), ""),
		} {
			// MySQL 8.0 counts the index entries of old row versions until they are purged, and takes the range for the whole index.
			testkit.WaitFor(b, time.Minute, name+" to read a range of the index", func() bool {
				key, access, extra := b.Explain(s)
				return key == "idx_sweep" && (access == "range" || access == "ref" || access == "ref_or_null") && !strings.Contains(extra, "filesort")
			})
		}
	})
}

// An application that writes the time of another zone: the row is swept like an old one, its age counts from the first sample,
// and doctor names the zone.
func TestRowsMadeAheadOfTheClock(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		query := table.DueQuery{Threshold: time.Minute, Horizon: time.Minute, ExpiredClaims: time.Minute}
		young := b.Insert(1, "")[0]
		if f, err := CheckClock(b.Ctx, b.DB, b.Table); err != nil || f.Severity != server.OK {
			b.Errorf("with the default of the column: %+v, %v", f, err)
		}
		ahead := b.Insert(1, "created_at=NOW(3) + INTERVAL 8 HOUR")[0]
		found := b.due(query)
		if len(found) != 1 || found[0].Identity != ahead {
			b.Errorf("due: %+v; want %v, which may be old, and not %v, which is young", found, ahead, young)
		}
		first := b.counts()
		var second Counts
		testkit.WaitFor(b, time.Minute, "a later sample", func() bool { second = b.counts(); return second.At.Sub(first.At) >= 10*time.Millisecond })
		if d := first.CreatedAhead - 8*time.Hour; d.Abs() > time.Minute {
			b.Errorf("the newest row is %v ahead", first.CreatedAhead)
		}
		if second.OldestPending <= 0 || second.OldestPending < second.At.Sub(first.At) {
			b.Errorf("the age is %v, it was seen to wait for %v", second.OldestPending, second.At.Sub(first.At))
		}
		f, err := CheckClock(b.Ctx, b.DB, b.Table)
		testkit.Must(b, err)
		_, offset := time.Now().In(b.table.Zone()).Zone()
		zone := time.FixedZone("", offset+8*3600)
		want := time.Now().In(zone).Format("-07:00")
		if f.Severity != server.Warning || !strings.Contains(f.What, "id "+ahead.ID) || !strings.Contains(f.Fix, "time_zone") || !strings.Contains(f.Fix, want) {
			b.Errorf("finding %+v, want the zone %s", f, want)
		}
		m := b.Mapping("outbox")
		m.TimeZone = want
		b.Load(m)
		if f, err := CheckClock(b.Ctx, b.DB, b.Table); err != nil || f.Severity != server.OK {
			b.Errorf("with the zone that was named: %+v, %v", f, err)
		}
	})
}

// D13: the database's clock went back, or a wrong time was written: a claim ahead of the clock is expired. One that is ahead by
// no more than the clocks of two servers differ is a claim of now.
func TestD13_ClaimsAheadOfTheClockAreTakenOver(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		query := table.DueQuery{Threshold: time.Minute, Horizon: time.Minute, ExpiredClaims: time.Minute}
		far := b.Insert(1, "status=1, last_exec_time=NOW(3) + INTERVAL 2 HOUR")[0]
		due := b.Insert(1, "status=1, last_exec_time=NOW(3) + INTERVAL 1 DAY, next_retry_time=NOW(3)")[0]
		b.Insert(1, "status=1, last_exec_time=NOW(3) + INTERVAL 3 SECOND")
		found := b.due(query)
		if len(found) != 2 || found[0].Identity != far || found[1].Identity != due {
			b.Fatalf("due: %+v", found)
		}
		if age := b.counts().OldestSending; age < 23*time.Hour {
			b.Errorf("a claim a day ahead counts as %v", age)
		}
		stamp, err := b.store.Claim(b.Ctx, found)
		testkit.Must(b, err)
		messages, _, err := b.store.ReadBack(b.Ctx, stamp, []outbox.Identity{far, due})
		testkit.Must(b, err)
		if len(messages) != 2 {
			b.Errorf("%d of 2 rows were taken over", len(messages))
		}
		if found := b.due(query); len(found) != 0 {
			b.Errorf("after the claim they are due still: %+v", found)
		}
	})
}

// G11: a table that cannot be counted keeps no other from its counts.
func TestG11_OneTableStopsNoCount(t *testing.T) {
	on(t, testkit.MySQL, "outbox", func(b *bench) {
		b.Insert(2, "")
		testkit.Exec(b, b.DB, "CREATE TABLE nowhere LIKE outbox")
		m := b.Mapping("outbox")
		m.Name = "nowhere"
		other, _, err := table.Load(b.Ctx, b.DB, m)
		testkit.Must(b, err)
		testkit.Exec(b, b.DB, "DROP TABLE nowhere")
		b.over(other, b.Table)
		counts, err := b.store.Counts(b.Ctx)
		if err == nil || !strings.Contains(err.Error(), "nowhere") || len(counts) != 1 || counts[0].Rows[outbox.Pending] != 2 {
			b.Errorf("counts %+v, %v", counts, err)
		}
	})
}

// A sample of a table is one statement and one more for its newest row: a relay has a sample made of each of its tables every few seconds.
func TestASampleTakesFewStatements(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.InsertMany(10)
		b.store.db.SetMaxOpenConns(1) // whose own counter is read
		selects := func() (n int) {
			b.Helper()
			var name string
			testkit.Must(b, b.store.db.QueryRow("SHOW SESSION STATUS LIKE 'Com_select'").Scan(&name, &n))
			return n
		}
		zone := selects()
		_, err := server.Zone(b.Ctx, b.store.db, b.table.Zone())
		testkit.Must(b, err)
		before := selects()
		_, err = b.store.Counts(b.Ctx)
		testkit.Must(b, err)
		if n := selects() - before - (before - zone); n != 2 {
			b.Errorf("%d statements", n)
		}
	})
}

// Rows whose status is not written yet count as sent; a count that was cut stays as it is.
func TestCountsOfRowsThatSettle(t *testing.T) {
	for _, c := range []struct{ pending, rows, wantPending, wantSent int64 }{
		{10, 3, 7, 53}, {3, 10, 0, 53}, {0, 10, 0, 50}, {table.MaxCount, 3, table.MaxCount, 50},
	} {
		counts := Counts{Rows: map[outbox.Status]int64{outbox.Pending: c.pending, outbox.Sent: 50}, OldestPending: time.Second}
		counts.Settle(int(c.rows))
		if got := counts.Rows; got[outbox.Pending] != c.wantPending || got[outbox.Sent] != c.wantSent || (counts.OldestPending > 0) != (c.wantPending > 0) {
			t.Errorf("%+v: %v, oldest %v", c, got, counts.OldestPending)
		}
	}
}
