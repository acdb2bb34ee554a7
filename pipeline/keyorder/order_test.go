package keyorder

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// Random events: rows of a key reach the broker in the order of their commits, one at a time; what is remembered is bounded; every row is final
// when all succeeds.
func TestRowsOfAKeyAreSentInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		dice := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)) // evenly: what rapid draws tends to be small
		pick := func(list ...string) string { return list[dice.IntN(len(list))] }
		keys := []string{"a", "b", "c", "d", "e"}[:1+dice.IntN(5)]
		for range dice.IntN(8) { // rows of an earlier process
			w.commit(pick(keys...))
			w.rows[len(w.rows)-1].visible, w.rows[len(w.rows)-1].offered, w.log = true, true, nil
		}
		calm := dice.IntN(2) == 0 // nothing is skipped or deferred
		for range rapid.IntRange(1, 300).Draw(t, "events") {
			switch event := dice.IntN(20); {
			case event < 3:
				w.commit(pick(keys...))
			case event < 7:
				how := "come"
				if !calm && dice.IntN(12) == 0 {
					how = pick("defer", "skip")
				}
				w.offer(how)
			case event < 10:
				w.answer(dice.IntN(50), pick("sent", "sent", "sent", "refused", "failed", "probe", "later"))
			case event < 11:
				w.again()
			case event < 13:
				w.write(dice.IntN(50))
			case event < 14:
				w.sweep(func() bool { return dice.IntN(3) > 0 })
			case event < 15:
				w.look()
			case event < 18:
				for range dice.IntN(8) {
					w.read()
				}
			case event < 19:
				w.show()
				if dice.IntN(5) == 0 {
					w.remove(dice.IntN(50))
				}
			default:
				for range w.rows { // the table shows a row within lateCommit
					w.show()
				}
				w.now = w.now.Add(time.Duration(dice.IntN(20)) * time.Second)
			}
			w.check()
		}
		w.finish()
	})
}

// While the log's reader is down the sweep goes ahead of it, and a row goes when a reading that began after the table had shown it has found no
// earlier one. A closed table forgets its rows at each reading, but not that: else none of its rows would ever go.
func TestAClosedTableGoesOnWithoutTheLog(t *testing.T) {
	track, err := tracker.New(outbox.MySQL, outbox.Position{File: "binlog.000001", Offset: 4}, noSweeps{}, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	o := New(Limits{Rows: 2, Behind: 1, AllBehind: tracker.Limit{Rows: 4, Bytes: 1 << 20}}, []string{"shop.t"})
	var rows []outbox.Candidate
	for n := range 6 {
		id := fmt.Sprint(n + 1)
		rows = append(rows, outbox.Candidate{Identity: outbox.Identity{Table: "shop.t", ID: id, MessageID: "m" + id}, Topic: "orders", Key: "k" + id})
	}
	now := time.Unix(1_000_000, 0)
	o.Ahead(outbox.Position{File: "binlog.000002", Offset: 4}) // the log is not offered up to there
	for range 500 {
		r := o.Reading("shop.t")
		for now = now.Add(time.Second); r.Due(now); {
			r.Begin(track, now)
			if done, _ := r.End(r.Page(rows, track, now), time.Millisecond, now); done {
				break
			}
		}
		reserved := track.Reserve(o.WithoutUnread(rows))
		free, waiting := o.Reserved(reserved, track.Offered(), now)
		track.Release(waiting)
		track.Release(free)
		for _, sent := range free {
			rows = slices.DeleteFunc(rows, func(c outbox.Candidate) bool { return c.ID == sent.ID })
			o.Final(sent.Identity, now)
		}
		if len(rows) == 0 {
			return
		}
	}
	t.Fatalf("%d rows are left", len(rows))
}

// Rows that a reading passes because they are in memory, and that are left to the sweep before it ends, stay before the later rows of their key. The
// claim of a later one may be given back first.
func TestRowsLeftDuringAReadingKeepTheirPlace(t *testing.T) {
	track, err := tracker.New(outbox.MySQL, outbox.Position{File: "binlog.000001", Offset: 4}, noSweeps{}, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	o := New(Limits{Rows: 3, Behind: 3, AllBehind: tracker.Limit{Rows: 4, Bytes: 1 << 20}}, []string{"shop.t"})
	key, others := "", []string{} // of the first share, and of the second
	for n := 0; key == "" || len(others) < 4; n++ {
		name := fmt.Sprint("k", n)
		if half := (&tableState{shares: 2}); half.has(Key{"shop.t", "orders", name}) {
			key = name
		} else {
			others = append(others, name)
		}
	}
	var rows []outbox.Candidate
	for n, k := range []string{key, key, key, others[0], others[1], others[2], others[3], key} {
		id := fmt.Sprint(n + 1)
		rows = append(rows, outbox.Candidate{Identity: outbox.Identity{Table: "shop.t", ID: id, MessageID: "m" + id}, Topic: "orders", Key: k})
	}
	now, r := time.Unix(1_000_000, 0), o.Reading("shop.t")
	r.Begin(track, now)
	r.End(true, time.Millisecond, now)
	var entries []*tracker.Entry
	free, _ := o.Reserved(track.Reserve(rows[:3]), track.Offered(), now)
	for _, c := range free {
		e, _ := track.ReadBack(&outbox.Message{Identity: c.Identity, Topic: c.Topic, ShardingKey: key, Path: outbox.PathSweep, Claim: "ours", Entry: c.Entry})
		o.Come(e, now)
		entries = append(entries, e)
	}
	entries[0].Sends.Count++
	o.Unread()
	r.Begin(track, now)
	r.End(r.Page(rows, track, now), time.Millisecond, now) // there are more rows than room
	r.Begin(track, now)
	r.Page(rows[:3], track, now)
	if next, left := o.Sent(entries[0], now); next != nil || len(left) != 2 {
		t.Fatalf("next is %v, %d rows are left", next, len(left))
	}
	if done, _ := r.End(r.Page(rows[3:], track, now), time.Millisecond, now); !done {
		t.Fatal("the table is not read")
	}
	track.Complete(entries[2])
	written := []outbox.Completion{{Identity: rows[2].Identity, Entry: entries[2]}}
	track.Settled(written)
	track.Written(written)
	if free, _ := o.Reserved(track.Reserve(rows[2:3]), track.Offered(), now); len(free) > 0 {
		t.Errorf("row 3 goes before row 2")
	}
}

func TestPrimaryKeysAreCompared(t *testing.T) {
	list := []string{"10", "-2", "b", "9", "-10", "a1", "2"}
	slices.SortFunc(list, compareKeys)
	if want := []string{"-10", "-2", "2", "9", "10", "a1", "b"}; fmt.Sprint(list) != fmt.Sprint(want) {
		t.Errorf("sorted %v, want %v", list, want)
	}
}
