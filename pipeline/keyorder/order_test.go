package keyorder

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
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

func TestPrimaryKeysAreCompared(t *testing.T) {
	list := []string{"10", "-2", "b", "9", "-10", "a1", "2"}
	slices.SortFunc(list, compareKeys)
	if want := []string{"-10", "-2", "2", "9", "10", "a1", "b"}; fmt.Sprint(list) != fmt.Sprint(want) {
		t.Errorf("sorted %v, want %v", list, want)
	}
}
