package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease/leasetest"
	"github.com/canal-outbox/canal-outbox/lease/protocol"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// twin runs each statement on a server and on the model.
type twin struct {
	t     *testing.T
	table *Table
	model leasetest.Table
	here  server.ID         // of the server
	now   time.Time         // of the model
	ends  map[string]string // from the server's texts to the model's
	seen  []protocol.View   // of the server; the model's are at the same indexes of other
	other []protocol.View
}

const never = 24 * time.Hour // a lease that does not end during the test

// read compares the rows. The texts of ends differ, but correspond one to one.
func (w *twin) read() {
	w.t.Helper()
	got, want := view(w.t, w.table), w.model.Read(w.now)
	if len(got.Rows) != len(want.Rows) || got.Server != want.Server || got.Counted != want.Counted || got.Birth != want.Birth || got.Newest != want.Newest {
		w.t.Fatalf("the server has %+v, the model %+v", got, want)
	}
	for i, g := range got.Rows {
		m := want.Rows[i]
		if text, known := w.ends[g.Ends]; known && text != m.Ends || (g.Ends == "") != (m.Ends == "") {
			w.t.Fatalf("the end of %+v, of the model %+v, was that of %s", g, m, text)
		}
		w.ends[g.Ends] = m.Ends
		if !slices.Equal(g.Tables, m.Tables) || g.Term != m.Term || g.Process != m.Process || g.Holder != m.Holder || g.Resume != m.Resume || g.Ended != m.Ended {
			w.t.Fatalf("the server has %+v, the model %+v", g, m)
		}
	}
	w.seen, w.other = append(w.seen, got), append(w.other, want)
}

// same compares the results of a statement.
func (w *twin) same(what string, got, want error) {
	w.t.Helper()
	switch {
	case want == nil && got == nil:
	case errors.Is(want, ErrTaken) && errors.Is(got, ErrTaken):
	case errors.Is(want, leasetest.ErrDuplicate) && server.Code(got) == 1062:
	default:
		w.t.Fatalf("%s: the server says %v, the model %v", what, got, want)
	}
}

// The model of the lease table does what the servers do: random sequences of the statements, of relays with different lists, of
// old and new readings and acquisitions, of another server's name and with lost rows, have the same rows, counts and errors.
func TestG02_TheModelIsTheTable(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		dice := rand.New(rand.NewPCG(21, 4))
		lists := [][]string{{"shop.a", "shop.b"}, {"shop.b"}, {"shop.b", "shop.c"}, {"shop.c", "shop.a", "shop.ü"}}
		for range 6 {
			testkit.Exec(t, table.db, "TRUNCATE TABLE "+table.name)
			w := &twin{t: t, table: table, now: time.Unix(1_000_000, 0), ends: map[string]string{}}
			w.model.Server, w.here = view(t, table).Server, identity(t, table)
			var own []protocol.Acquisition
			for range 40 {
				w.read()
				w.now = w.now.Add(time.Second)
				own = append(own, w.step(t.Context(), dice, lists, own)...)
				time.Sleep(2 * time.Millisecond) // an end in the server's text has milliseconds
			}
		}
	})
}

// step runs one statement; it returns a possible acquisition.
func (w *twin) step(ctx context.Context, dice *rand.Rand, lists [][]string, own []protocol.Acquisition) []protocol.Acquisition {
	at := Resume{}
	if dice.IntN(2) == 0 {
		at = Resume{Source: w.here, At: outbox.Position{File: "log.1", Offset: dice.Uint64N(100)}}
	}
	ttl := []time.Duration{never, -time.Hour}[dice.IntN(2)]
	kind := dice.IntN(20)
	switch {
	case kind == 0:
		w.lose(dice)
	case kind < 3 || !w.model.Counted:
		birth, newest := fmt.Sprint("birth", dice.IntN(3)), dice.Uint64N(3)
		w.same("begin", w.table.Begin(ctx, birth, newest), nil)
		w.model.Begin(birth, newest)
	case kind < 10 || len(own) == 0:
		return []protocol.Acquisition{w.take(ctx, dice, lists, at, ttl)}
	default:
		a := own[len(own)-1-dice.IntN(min(4, len(own)))]
		switch dice.IntN(8) {
		case 0:
			a.Server++
		case 1:
			a.Process = "another"
		case 2:
			a.Tables = lists[dice.IntN(len(lists))]
		}
		if kind < 17 {
			held, err := w.table.Renew(ctx, a, at, ttl)
			if want := w.model.Renew(a, at, ttl, w.now); err != nil || held != want {
				w.t.Fatalf("renew %+v: the server says %v, %v, the model %v", a, held, err, want)
			}
		} else {
			w.same("release", w.table.Release(ctx, a, at), nil)
			w.model.Release(a, at)
		}
	}
	return nil
}

// take is an acquisition after one of the last readings.
func (w *twin) take(ctx context.Context, dice *rand.Rand, lists [][]string, at Resume, ttl time.Duration) protocol.Acquisition {
	i := len(w.seen) - 1 - dice.IntN(dice.IntN(min(3, len(w.seen)))+1)
	v, other, tables := w.seen[i], w.other[i], lists[dice.IntN(len(lists))]
	next := Record{Term: v.Newest + 1, Process: fmt.Sprint("boot/", dice.IntN(3), "/10000ms"), Holder: "dir", Tables: tables, Resume: at}
	if dice.IntN(10) == 0 && len(v.Rows) > 0 {
		next.Term = v.Rows[0].Term // of an existing row, perhaps of one that is removed
	}
	real := protocol.Take{Server: v.Server, Birth: v.Birth, Newest: v.Newest, Next: next}
	if dice.IntN(10) == 0 {
		real.Server++
	}
	model := real
	for k, r := range v.Rows {
		if slices.ContainsFunc(r.Tables, func(name string) bool { return slices.Contains(tables, name) }) {
			real.From, model.From = append(real.From, r), append(model.From, other.Rows[k])
		}
	}
	w.same("take", w.table.Take(ctx, real, ttl), w.model.Take(model, ttl, w.now))
	return protocol.Acquisition{Term: next.Term, Process: next.Process, Tables: tables, Server: v.Server}
}

// lose removes rows as an operator may.
func (w *twin) lose(dice *rand.Rand) {
	switch dice.IntN(3) {
	case 0:
		testkit.Exec(w.t, w.table.db, "TRUNCATE TABLE "+w.table.name)
		w.model = leasetest.Table{Server: w.model.Server}
	case 1:
		testkit.Exec(w.t, w.table.db, "DELETE FROM "+w.table.name+" WHERE epoch = 0")
		w.model.Counted, w.model.Birth, w.model.Newest = false, "", 0
	default:
		if len(w.model.Rows) > 0 {
			testkit.Exec(w.t, w.table.db, fmt.Sprint("DELETE FROM ", w.table.name, " WHERE epoch = ", w.model.Rows[0].Term))
			w.model.Rows = slices.Delete(w.model.Rows, 0, 1)
		}
	}
}
