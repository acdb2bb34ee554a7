package alert

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// day is a Memory that outlives an Alerter.
type day struct {
	day Day
	err error
}

func (d *day) Day() (Day, error) { return d.day, d.err }

func (d *day) KeepDay(now Day) error {
	if d.err == nil {
		d.day = now
	}
	return d.err
}

// The digest counts over a restart, and says since when; a memory that fails costs the counts, not the digest.
func TestG26_TheDigestCountsOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, w := &day{}, &webhook{}
		cfg := Config{Digest: time.Now().Add(3 * time.Hour).Format("15:04"), Memory: kept}
		began := time.Now().UTC()
		a, _, stop := run(t, w, cfg)
		synctest.Wait()
		a.Failed(failure(1))
		a.Failed(failure(2))
		time.Sleep(time.Hour)
		stop()
		a, _, stop = run(t, w, cfg)
		a.Failed(failure(3))
		time.Sleep(4 * time.Hour)
		stop()
		d := w.messages[len(w.messages)-1]
		if d.Type != "digest" || *d.Failed != 3 || d.Since.Sub(began).Abs() > time.Minute || !strings.Contains(d.Text, "3 messages failed since "+began.Format("2006-01-02")) {
			t.Errorf("%+v", d)
		}
		if kept.day.Failed != 0 || kept.day.Since.Equal(began) {
			t.Errorf("after the digest: %+v", kept.day)
		}
		kept.err = errors.New("the disk is full")
		_, logs, stop := run(t, w, cfg)
		time.Sleep(25 * time.Hour)
		stop()
		if d := w.messages[len(w.messages)-1]; d.Type != "digest" || *d.Failed != 0 || logs.FilterMessageSnippet("counts of the digest").Len() == 0 {
			t.Errorf("%+v, %v", d, logs.All())
		}
	})
}

// A row that another program has set to FAILED is reported, once; the relay's own rows, those of the first look and those of a table with
// too many are not. A table that cannot be listed delays no other.
func TestG26_RowsThatTheApplicationFailsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &webhook{}
		tables := map[string][]Row{"shop.t": {listed("shop.t", 1)}, "shop.away": nil, "shop.u": nil}
		asked := 0
		var mu sync.Mutex // of tables and asked
		cfg := Config{
			Tables: func() []Table {
				mu.Lock()
				defer mu.Unlock()
				return []Table{{Table: "shop.away", Failed: 7}, {Table: "shop.t", Failed: int64(len(tables["shop.t"]))}, {Table: "shop.u", Failed: int64(len(tables["shop.u"]))}}
			},
			Failed: func(_ context.Context, table string) ([]Row, error) {
				mu.Lock()
				defer mu.Unlock()
				asked++
				if table == "shop.away" {
					return nil, errors.New("no such column")
				}
				return slices.Clone(tables[table]), nil
			},
		}
		add := func(table string, rows ...Row) {
			mu.Lock()
			defer mu.Unlock()
			tables[table] = append(tables[table], rows...)
		}
		listings := func() int {
			mu.Lock()
			defer mu.Unlock()
			return asked
		}
		a, logs, stop := run(t, w, cfg)
		time.Sleep(time.Minute + time.Second)
		if len(w.messages) != 0 || logs.FilterMessageSnippet("cannot list FAILED rows").Len() != 1 {
			t.Fatalf("%+v, %v", w.messages, logs.All())
		}
		before := listings()
		add("shop.t", listed("shop.t", 2), listed("shop.t", 3))
		time.Sleep(watchEvery)
		synctest.Wait()
		a.Failed(failure(3)) // the relay's own: the table has shown it shortly before
		add("shop.u", listed("shop.u", 9))
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := listings() - before; n > 2*12+8 { // shop.away each time, the others when something has changed
			t.Errorf("%d listings in a minute", n)
		}
		stop()
		var told []string
		for _, m := range w.messages {
			for _, r := range m.Rows {
				told = append(told, r.Class+" "+r.Table+" "+r.ID+" "+r.Type+" "+r.Key)
			}
		}
		slices.Sort(told)
		if want := []string{"application shop.t 2 refund k", "application shop.u 9 refund k", "refused shop.t 3 refund k-3"}; !slices.Equal(told, want) {
			t.Errorf("%q, want %q", told, want)
		}
		if !slices.ContainsFunc(w.messages, func(m message) bool { return strings.Contains(m.Text, "another program has set a message of") }) {
			t.Errorf("%+v", w.messages)
		}
	})
}

// A table with more FAILED rows than a listing shows is no source of news: which of them are new is not known.
func TestG26_TooManyFailedRows(t *testing.T) {
	a := New(Config{Webhook: "https://hooks.example"}, nil, nil)
	many := make([]Row, MaxListed)
	for i := range many {
		many[i] = listed("shop.t", i)
	}
	f := a.of("shop.t")
	for _, rows := range [][]Row{many[:5], many, many[2:], many[2:900], many[2:900]} {
		a.compare(f, int64(len(rows)), rows)
	}
	if len(a.waiting) != 0 {
		t.Errorf("%d rows were reported", len(a.waiting))
	}
}

func listed(table string, n int) Row {
	id := failure(n).Identity
	return Row{Table: table, ID: id.ID, MessageID: id.MessageID, Type: "refund", Key: "k", Topic: "orders"}
}
