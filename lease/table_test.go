package lease

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
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

func read(t *testing.T, table *Table) ([]Record, uint64) {
	t.Helper()
	all, newest, err := table.Read(t.Context())
	testkit.Must(t, err)
	return all, newest
}

// The rows do what the model of the other tests does.
func TestTheTable(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		ctx := t.Context()
		if all, newest := read(t, table); all != nil || newest != 0 {
			t.Fatalf("an empty table has %v, newest %d", all, newest)
		}
		first := Record{Epoch: 1, Holder: "one", Process: "p", Host: "h:/dir", Tables: []string{"shop.a", "shop.ü`'\""}}
		testkit.Must(t, table.Take(ctx, first, 0, nil, time.Hour))
		all, newest := read(t, table)
		if len(all) != 1 || newest != 1 || all[0].Ended || all[0].Ends == "" || all[0].Host != first.Host || !slices.Equal(all[0].Tables, first.Tables) {
			t.Fatalf("taken: %+v, newest %d", all, newest)
		}
		if err := table.Take(ctx, Record{Epoch: 1, Tables: []string{"x.y"}}, 0, nil, time.Hour); !errors.Is(err, ErrTaken) {
			t.Errorf("who read before the acquisition: %v", err)
		}

		at := Resume{Source: server.ID{Flavor: outbox.MySQL, UUID: "u", ServerID: 7}, At: outbox.Position{File: "log.1", Offset: 9, GTIDs: "u:1-5"}}
		held, err := table.Renew(ctx, 1, at, time.Microsecond)
		if err != nil || !held {
			t.Errorf("renewed: %v, %v", held, err)
		}
		expired, _ := read(t, table)
		if expired[0].Ends == all[0].Ends || expired[0].Resume != at {
			t.Errorf("renewed: %+v", expired)
		}
		pause := outbox.Pause{By: "user 'ü'", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Reason: strings.Repeat("<", 500)}
		for _, p := range []*outbox.Pause{&pause, nil} {
			_, err := table.Renew(ctx, 1, Resume{Pause: p}, time.Microsecond)
			testkit.Must(t, err)
			if all, _ := read(t, table); all[0].Resume.At != at.At || (all[0].Resume.Pause != nil) != (p != nil) || p != nil && *all[0].Resume.Pause != pause {
				t.Errorf("the pause %v is %+v", p, all[0].Resume)
			}
		}
		testkit.WaitFor(t, 10*time.Second, "its end", func() bool { expired, _ = read(t, table); return expired[0].Ended })
		second := Record{Epoch: 2, Holder: "two", Tables: []string{"shop.a", "shop.b"}, Resume: at}
		if err := table.Take(ctx, second, 1, all, time.Hour); !errors.Is(err, ErrTaken) {
			t.Errorf("who read before the renewal: %v", err)
		}
		testkit.Must(t, table.Take(ctx, second, 1, expired, time.Hour))
		all, newest = read(t, table)
		if len(all) != 2 || newest != 2 || len(all[0].Tables) != 1 || all[0].Tables[0] == "shop.a" || all[1].Resume != at {
			t.Errorf("a table is in two rows, or the position was lost: %+v", all)
		}
		testkit.Must(t, table.Release(ctx, 2, Resume{}))
		all, _ = read(t, table)
		if all[1].Ends != "" || all[1].Resume != at {
			t.Errorf("released: %+v", all[1])
		}
		testkit.Must(t, table.Take(ctx, Record{Epoch: 3, Tables: all[1].Tables}, 2, all[1:], time.Hour))
		if held, err := table.Renew(ctx, 2, at, time.Hour); err != nil || held {
			t.Errorf("a row that was taken out: %v, %v", held, err)
		}
	})
}

// The check of a start, or of doctor, changes nothing; and a counter that somebody deleted does not make numbers come again.
func TestTheCounterStays(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		ctx, tables := t.Context(), []string{"shop.a"}
		for epoch := uint64(1); epoch < 3; epoch++ {
			all, newest := read(t, table)
			testkit.Must(t, table.Take(ctx, Record{Epoch: newest + 1, Tables: tables}, newest, all, time.Hour))
			if _, now := read(t, table); now != epoch {
				t.Fatalf("acquisition %d has number %d", epoch, now)
			}
			found, err := Check(ctx, table.db, strings.ReplaceAll(table.name, "`", ""), "")
			if err != nil || found.Severity != server.OK {
				t.Fatalf("%+v, %v", found, err)
			}
		}
		testkit.Exec(t, table.db, "DELETE FROM "+table.name+" WHERE epoch = 0")
		all, newest := read(t, table)
		testkit.Must(t, table.Take(ctx, Record{Epoch: newest + 1, Tables: tables}, newest, all, time.Hour))
		if all, newest := read(t, table); newest != 3 || len(all) != 1 || all[0].Epoch != 3 {
			t.Errorf("newest %d, %+v", newest, all)
		}
	})
}

// Whoever reads, is held up, and takes when others have come and gone, is refused.
func TestAnAcquisitionThatWasHeldUp(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		ctx, tables := t.Context(), []string{"shop.a"}
		from, newest := read(t, table)
		for epoch := uint64(1); epoch < 4; epoch++ {
			now, before := read(t, table)
			testkit.Must(t, table.Take(ctx, Record{Epoch: epoch, Tables: tables}, before, now, time.Hour))
		}
		if err := table.Take(ctx, Record{Epoch: newest + 1, Tables: tables}, newest, from, time.Hour); !errors.Is(err, ErrTaken) {
			t.Errorf("it took the lease: %v", err)
		}
	})
}

// Of many that take at once one succeeds, each time, also when there was never any.
func TestManyTakeAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		for range 20 {
			from, newest := read(t, table)
			var group sync.WaitGroup
			var mu sync.Mutex
			taken := 0
			for range 4 {
				group.Go(func() {
					switch err := table.Take(t.Context(), Record{Epoch: newest + 1, Tables: []string{"shop.a"}}, newest, from, time.Hour); {
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
			if all, _ := read(t, table); taken != 1 || len(all) != 1 {
				t.Fatalf("%d have taken it, %d rows", taken, len(all))
			}
		}
	})
}
