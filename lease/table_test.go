package lease

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease/protocol"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func onBoth(t *testing.T, f func(t *testing.T, table *Table)) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			d := testkit.SharedDatabase(t, flavor)
			name := d.CreateSchema(t) + ".lease"
			ddl, err := migrations.DDL("lease", name)
			testkit.Must(t, err)
			testkit.Exec(t, d.Root(), ddl)
			db, err := server.Open(server.Config{Address: d.Addr(), User: "root"}, nil, server.Session{Writes: true, Replicated: true})
			testkit.Must(t, err)
			t.Cleanup(func() { testkit.Must(t, db.Close()) })
			f(t, NewTable(db, name))
		})
	}
}

// view is the result of a read now.
func view(t *testing.T, table *Table) protocol.View {
	t.Helper()
	v, err := table.Read(t.Context())
	testkit.Must(t, err)
	return v
}

// takes is an acquisition of all rows.
func takes(v protocol.View, next Record) protocol.Take {
	next.Term = v.Newest + 1
	return protocol.Take{Server: v.Server, Birth: v.Birth, Newest: v.Newest, Next: next, From: v.Rows}
}

// What the model does not have: every character of a name, a position, a pause, and the end by the server's clock.
func TestTheTable(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		ctx := t.Context()
		empty := view(t, table)
		if empty.Counted || empty.Rows != nil || empty.Server == 0 {
			t.Fatalf("an empty table is %+v", empty)
		}
		testkit.Must(t, table.Begin(ctx, "birth", 0))
		first := Record{Holder: "one", Process: "p", Host: "h:/dir", Tables: []string{"shop.a", "shop.ü`'\""}}
		testkit.Must(t, table.Take(ctx, takes(view(t, table), first), time.Hour))
		v := view(t, table)
		if len(v.Rows) != 1 || v.Newest != 1 || v.Birth != "birth" || v.Rows[0].Ended || v.Rows[0].Ends == "" || v.Rows[0].Host != first.Host ||
			!slices.Equal(v.Rows[0].Tables, first.Tables) {
			t.Fatalf("taken: %+v", v)
		}
		own := protocol.Acquisition{Term: 1, Process: "p", Tables: first.Tables, Server: v.Server}
		at := Resume{Source: server.ID{Flavor: outbox.MySQL, UUID: "u", ServerID: 7}, At: outbox.Position{File: "log.1", Offset: 9, GTIDs: "u:1-5"}}
		held, err := table.Renew(ctx, own, at, time.Microsecond)
		if err != nil || !held {
			t.Errorf("renewed: %v, %v", held, err)
		}
		if expired := view(t, table); expired.Rows[0].Ends == v.Rows[0].Ends || expired.Rows[0].Resume != at {
			t.Errorf("renewed: %+v", expired)
		}
		pause := outbox.Pause{By: "user 'ü'", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Reason: strings.Repeat("<", 500)}
		for _, p := range []*outbox.Pause{&pause, nil} {
			_, err := table.Renew(ctx, own, Resume{Pause: p}, time.Microsecond)
			testkit.Must(t, err)
			if r := view(t, table).Rows[0].Resume; r.At != at.At || (r.Pause != nil) != (p != nil) || p != nil && *r.Pause != pause {
				t.Errorf("the pause %v is %+v", p, r)
			}
		}
		testkit.WaitFor(t, 10*time.Second, "its end", func() bool { return view(t, table).Rows[0].Ended })
		testkit.Must(t, table.Release(ctx, own, Resume{}))
		if r := view(t, table).Rows[0]; r.Ends != "" || r.Resume != at {
			t.Errorf("released: %+v", r)
		}
	})
}

// A table and rows as releases before this one wrote them: no birth of the counter, no lease time of the process.
func TestG03_RowsOfAnOlderRelease(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		const insert = " (epoch, holder, process, host, table_names, expires_at, source, log_file, log_offset, gtid_set, paused) VALUES "
		testkit.Exec(t, table.db, "INSERT IGNORE INTO "+table.name+" (epoch, holder, process, host, table_names, log_offset, gtid_set) VALUES (0, '', '', '', '[]', 7, '')")
		testkit.Exec(t, table.db, "INSERT INTO "+table.name+insert+"(7, 'dir', 'boot/ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'host:/dir', '[\"shop.a\"]', "+
			"UTC_TIMESTAMP(3) + INTERVAL 10 SECOND, '{\"flavor\":\"mysql\",\"uuid\":\"u\",\"server_id\":3}', 'log.1', 4, '', '')")
		v := view(t, table)
		if !v.Counted || v.Birth != "" || v.Newest != 7 || len(v.Rows) != 1 {
			t.Fatalf("%+v", v)
		}
		if r := v.Rows[0]; protocol.LeaseTime(r.Process) != 0 || protocol.Boot(r.Process) != "boot" || r.Resume.Source.ServerID != 3 || r.Resume.At.Offset != 4 {
			t.Errorf("%+v", r)
		}
		next := Record{Holder: "dir", Process: protocol.Process(strings.Repeat("b", 32), "ABCDEFGHIJKLMNOP", 10*time.Minute), Tables: []string{"shop.a"}}
		testkit.Must(t, table.Take(t.Context(), takes(v, next), time.Hour))
		if v = view(t, table); v.Newest != 8 || len(v.Rows) != 1 || protocol.LeaseTime(v.Rows[0].Process) != 10*time.Minute {
			t.Errorf("%+v", v)
		}
	})
}

// The check of a start, or of doctor, changes nothing.
func TestTheCheckChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		testkit.Must(t, table.Begin(t.Context(), "birth", 0))
		testkit.Must(t, table.Take(t.Context(), takes(view(t, table), Record{Tables: []string{"shop.a"}}), time.Hour))
		before := view(t, table)
		found, err := Check(t.Context(), table.db, strings.ReplaceAll(table.name, "`", ""), "")
		if err != nil || found.Severity != server.OK {
			t.Fatalf("%+v, %v", found, err)
		}
		if after := view(t, table); !reflect.DeepEqual(before, after) {
			t.Errorf("%+v, before %+v", after, before)
		}
	})
}

// Of many concurrent acquisitions one succeeds, each time, also in a new table.
func TestManyTakeAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		for range 20 {
			testkit.Must(t, table.Begin(t.Context(), "birth", 0))
			v := view(t, table)
			var group sync.WaitGroup
			var mu sync.Mutex
			taken := 0
			for range 4 {
				group.Go(func() {
					switch err := table.Take(t.Context(), takes(v, Record{Tables: []string{"shop.a"}}), time.Hour); {
					case err == nil:
						mu.Lock()
						taken++
						mu.Unlock()
					case !errors.Is(err, ErrTaken) && server.Classify(err) != server.Transient:
						t.Error(err)
					}
				})
			}
			group.Wait()
			if v := view(t, table); taken != 1 || len(v.Rows) != 1 {
				t.Fatalf("%d have taken it, %d rows", taken, len(v.Rows))
			}
		}
	})
}

// A holder whose table was taken by a relay of fewer tables, while it was disconnected, holds neither that one nor the rest.
func TestG01_ALeaseTakenInPartIsNotRenewed(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		ctx := t.Context()
		testkit.Must(t, table.Begin(ctx, "birth", 0))
		a := Record{Process: "a", Tables: []string{"shop.a", "shop.b"}}
		testkit.Must(t, table.Take(ctx, takes(view(t, table), a), time.Hour))
		testkit.Must(t, table.Take(ctx, takes(view(t, table), Record{Process: "b", Tables: []string{"shop.b"}}), time.Hour))
		before := view(t, table)
		own := protocol.Acquisition{Term: 1, Process: "a", Tables: a.Tables, Server: before.Server}
		held, err := table.Renew(ctx, own, Resume{}, 2*time.Hour)
		if err != nil || held {
			t.Errorf("renewed: %v, %v", held, err)
		}
		testkit.Must(t, table.Release(ctx, own, Resume{}))
		if after := view(t, table); !reflect.DeepEqual(before, after) {
			t.Errorf("%+v, before %+v", after, before)
		}
	})
}

// If the rows and the counter are lost a term is used again. The lost holder neither renews nor releases the row of the other
// process.
func TestG02_ATermThatComesAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		ctx, tables := t.Context(), []string{"shop.a"}
		for _, process := range []string{"a", "b"} {
			testkit.Exec(t, table.db, "TRUNCATE TABLE "+table.name)
			testkit.Must(t, table.Begin(ctx, "birth of "+process, 0))
			testkit.Must(t, table.Take(ctx, takes(view(t, table), Record{Process: process, Tables: tables}), time.Hour))
		}
		before := view(t, table)
		own := protocol.Acquisition{Term: 1, Process: "a", Tables: tables, Server: before.Server}
		held, err := table.Renew(ctx, own, Resume{}, 2*time.Hour)
		if err != nil || held {
			t.Errorf("renewed: %v, %v", held, err)
		}
		testkit.Must(t, table.Release(ctx, own, Resume{}))
		if after := view(t, table); !reflect.DeepEqual(before, after) {
			t.Errorf("%+v, before %+v", after, before)
		}
	})
}
