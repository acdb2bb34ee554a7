package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// rowsOf lists the message ids of a window, in the order in which they come.
func (b *bench) rowsOf(from, to time.Time) (ids []string) {
	b.Helper()
	testkit.Must(b, b.store.Rows(b.Ctx, b.table.Name(), from, to, func(m *outbox.Message, fault error) error {
		testkit.Must(b, fault)
		ids = append(ids, m.MessageID)
		return nil
	}))
	return ids
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// many inserts n rows, each made a second before the one that follows it in the order of keys, so that the two orders differ;
// the last one is made at noon in UTC.
func (b *bench) many(n int) {
	b.Helper()
	for from := 0; from < n; from += 1000 {
		var values []string
		for i := from; i < min(n, from+1000); i++ {
			at := noon.Add(time.Duration(n-1-i) * time.Second)
			values = append(values, fmt.Sprintf("('many', 'key-%d', 'orders', '{}', 2, '%s')", i, at.Format(time.DateTime)))
		}
		testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" (biz_type, biz_key, topic, message_body, status, created_at) VALUES "+strings.Join(values, ", "))
	}
}

// Every row of a window comes once, by an index on the time and without one, over many pages; its ends are the first moment
// that belongs to it and the first that does not.
func TestRowsOfAWindow(t *testing.T) {
	const rows = 1_200
	onBoth(t, "outbox", func(b *bench) {
		m := b.Mapping("outbox")
		m.TimeZone = "+00:00"
		b.Load(m)
		b.store.pages = pages{50, 100}
		b.many(rows)
		for _, index := range []string{"", "by_time (created_at)", "by_time_and_id (created_at, id)"} {
			if index != "" {
				testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" ADD INDEX "+index)
			}
			name, err := b.store.createdIndex(b.Ctx, b.table)
			testkit.Must(b, err)
			if want, _, _ := strings.Cut(index, " "); name != want && index != "by_time_and_id (created_at, id)" {
				b.Errorf("the rows are read by %q, want %q", name, want)
			}
			got := b.rowsOf(noon.Add(time.Second), noon.Add((rows-1)*time.Second))
			slices.Sort(got)
			if n := len(got); n != rows-2 || len(slices.Compact(got)) != n {
				b.Errorf("%s: %d rows, want %d, each once", index, n, rows-2)
			}
			if slices.Contains(got, "many:key-0") || slices.Contains(got, fmt.Sprint("many:key-", rows-1)) || !slices.Contains(got, "many:key-1") {
				b.Errorf("%s: the ends are wrong", index)
			}
		}
		// Many rows of one time, more than a page.
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET created_at = '2026-01-02 12:00:01'")
		if got := b.rowsOf(noon, noon.Add(time.Hour)); len(got) != rows || len(slices.Compact(slices.Sorted(slices.Values(got)))) != rows {
			b.Errorf("%d rows of one time, want %d", len(got), rows)
		}
	})
}

// A window is a span of time, in whatever zone and type the column holds it.
func TestWindowInEachZone(t *testing.T) {
	for _, c := range []struct{ column, zone, text string }{
		{"DATETIME(3) NOT NULL", "+08:00", "2026-01-02 20:00:00.250"},
		{"DATETIME(3) NOT NULL", "", "2026-01-02 12:00:00.250"}, // the test servers' own is UTC
		{"TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", "+08:00", "2026-01-02 12:00:00.250"},
	} {
		t.Run(c.column+c.zone, func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY created_at "+c.column+", ADD INDEX (created_at)")
				m := b.Mapping("outbox")
				m.TimeZone = c.zone
				b.Load(m)
				b.Insert(1, "created_at = '"+c.text+"'")
				made := noon.Add(250 * time.Millisecond)
				for _, w := range []struct {
					from, to time.Time
					rows     int
				}{
					{made, made.Add(time.Millisecond), 1},
					{made.Add(-time.Millisecond), made, 0},
					{made.Add(time.Millisecond), made.Add(time.Hour), 0},
					{made.Add(-4 * time.Hour), made.Add(4 * time.Hour), 1},
					{made.Add(4 * time.Hour), made.Add(12 * time.Hour), 0},
				} {
					if got := b.rowsOf(w.from, w.to); len(got) != w.rows {
						b.Errorf("from %s to %s: %d rows, want %d", w.from, w.to, len(got), w.rows)
					}
				}
			})
		})
	}
}

// A row that is no message is reported, and the others come; a table that does not say when rows are made cannot be asked.
func TestRowsThatAreNoMessages(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.Insert(2, "")
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET topic = '' WHERE id = "+ids[0].ID)
		faults, messages := 0, 0
		now, err := b.store.Now(b.Ctx)
		testkit.Must(b, err)
		testkit.Must(b, b.store.Rows(b.Ctx, b.table.Name(), now.Add(-time.Hour), now.Add(time.Hour), func(m *outbox.Message, fault error) error {
			if m.Table != b.table.Name() {
				b.Errorf("a row of the table %q", m.Table)
			}
			if fault != nil {
				faults++
			} else {
				messages++
			}
			return nil
		}))
		if faults != 1 || messages != 1 {
			b.Errorf("%d faults, %d messages", faults, messages)
		}
		if since := time.Since(now).Abs(); since > time.Minute {
			b.Errorf("the database's clock is %s away", since)
		}
		stop := errors.New("stop")
		if err := b.store.Rows(b.Ctx, b.table.Name(), now.Add(-time.Hour), now.Add(time.Hour), func(*outbox.Message, error) error { return stop }); !errors.Is(err, stop) {
			b.Errorf("stopped with %v", err)
		}
		m := b.Mapping("outbox")
		m.Set(table.CreatedAt, "")
		b.Load(m)
		if err := b.store.Rows(b.Ctx, b.table.Name(), now, now, nil); !errors.Is(err, ErrNoCreatedAt) {
			b.Errorf("without a creation time: %v", err)
		}
	})
}

// Every layout's rows come once each, whatever its key and its indexes are, and are found again by their message ids.
func TestWindowOfEachLayout(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		const rows = 23
		b.store.pages = pages{5, 7}
		var want []string
		for n := range rows {
			b.Add(l, n+1)
			want = append(want, l.MessageID(n+1))
		}
		slices.Sort(want)
		found, err := b.store.HasMessages(b.Ctx, append(want, "missing", "00", "x:y"))
		testkit.Must(b, err)
		b.has(found, append(want, "missing"), want...)
		b.lookup("")
		now, err := b.store.Now(b.Ctx)
		testkit.Must(b, err)
		if !b.table.Has(table.CreatedAt) {
			if err := b.store.Rows(b.Ctx, b.table.Name(), now, now, nil); !errors.Is(err, ErrNoCreatedAt) {
				b.Errorf("without a creation time: %v", err)
			}
			return
		}
		got := b.rowsOf(time.Unix(1e9, 0), now.Add(48*time.Hour)) // some fixtures have a time of their own
		slices.Sort(got)
		if !slices.Equal(got, want) {
			b.Errorf("rows %q, want %q", got, want)
		}
		if early := b.rowsOf(time.Unix(0, 0), time.Unix(1e9, 0)); len(early) > 0 {
			b.Errorf("rows of another window: %q", early)
		}
	})
}

// Which message ids have a row, compared byte by byte, by an index in each layout.
func TestHasMessages(t *testing.T) {
	ask := []string{
		"order:key-1", "ORDER:key-1", "order:key-1 ", "order:key-9", "a:b:c", "a:b", "", ":", "x", "\xff:1", "order:kéy-1", `o'r\der:"1"`, "order:key-2",
	}
	onBoth(t, "outbox", func(b *bench) {
		b.Insert(1, "status = 2")
		b.Insert(1, "status = 9")
		testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" (biz_type, biz_key, topic, message_body) VALUES ('a:b', 'c', 't', '{}'), (?, '\"1\"', 't', '{}')", `o'r\der`)
		found, err := b.store.HasMessages(b.Ctx, ask)
		testkit.Must(b, err)
		b.has(found, ask, "order:key-1", "order:key-2", "a:b:c", `o'r\der:"1"`)
		b.readsFew(ask)
		b.lookup("")

		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" DROP INDEX uk_message")
		b.lookup("no index finds a row by its message id")
		m := b.Mapping("outbox")
		t, _, err := table.Load(b.Ctx, b.DB, m)
		testkit.Must(b, err)
		b.Use(t) // now the primary key ends the message id
		ask := []string{"order:key-1:1", "order:key-1:2", "order:key-1", "a:b:c:3", "order:key-1:x", "order:key-1:01"}
		found, err = b.store.HasMessages(b.Ctx, ask)
		testkit.Must(b, err)
		b.has(found, ask, "order:key-1:1", "a:b:c:3")
		b.lookup("")
	})
}

// has compares what was found of what was asked for; a collation may find more.
func (b *bench) has(found map[string]bool, asked []string, want ...string) {
	b.Helper()
	var got []string
	for id := range found {
		if slices.Contains(asked, id) {
			got = append(got, id)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Errorf("found %q, want %q", got, want)
	}
}

// lookup checks what CheckLookup says.
func (b *bench) lookup(want string) {
	b.Helper()
	findings, err := b.store.CheckLookup(b.Ctx)
	testkit.Must(b, err)
	if want == "" && len(findings) == 0 {
		return
	}
	if want == "" || len(findings) != 1 || findings[0].What != want {
		b.Errorf("findings %+v, want %q", findings, want)
	}
}

// readsFew checks that the server finds the rows by an index among many others.
func (b *bench) readsFew(ids []string) {
	b.Helper()
	b.many(3000)
	testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
	var before, after int
	var name string
	read := func(into *int) {
		testkit.Must(b, b.store.db.QueryRow("SHOW SESSION STATUS LIKE 'Handler_read_rnd_next'").Scan(&name, into))
	}
	b.store.db.SetMaxOpenConns(1)
	read(&before)
	_, err := b.store.HasMessages(b.Ctx, ids)
	testkit.Must(b, err)
	read(&after)
	if after-before > 1000 { // the status is a table itself
		b.Errorf("%d rows were read in the order of the table", after-before)
	}
}
