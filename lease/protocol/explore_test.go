package protocol_test

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/lease/leasetest"
)

// explored is the result of an exploration.
type explored struct {
	states, steps, depth int
	complete             bool     // every state within the bounds was reached, below the limits of depth and number
	fault                string   // two relays may publish one table
	trace                []string // the steps to the fault
}

// explore visits every reachable state, breadth first, each one once: states that differ only in absolute times, or in the text
// of an end, are one. It stops at the first fault, at a depth, or at a number of states.
func explore(b bounds, depth, limit int) (e explored) {
	type origin struct {
		from int32
		step string
	}
	var origins []origin
	seen := map[[2]uint64]struct{}{}
	seeds := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	var buffer []byte
	isNew := func(w *world) bool {
		buffer = w.canonical(buffer[:0])
		key := [2]uint64{maphash.Bytes(seeds[0], buffer), maphash.Bytes(seeds[1], buffer)}
		if _, known := seen[key]; known {
			return false
		}
		seen[key] = struct{}{}
		return true
	}
	first := newWorld(b)
	isNew(first)
	origins = append(origins, origin{from: -1})
	frontier, numbers := []*world{first}, []int32{0}
	for ; len(frontier) > 0 && e.depth < depth; e.depth++ {
		var next []*world
		var nextNumbers []int32
		for i, w := range frontier {
			w.each(func(step string, to *world) bool {
				e.steps++
				if !isNew(to) {
					return true
				}
				origins = append(origins, origin{numbers[i], step})
				at := int32(len(origins) - 1)
				if e.fault = to.fault(); e.fault != "" {
					for ; at > 0; at = origins[at].from {
						e.trace = append(e.trace, origins[at].step)
					}
					slices.Reverse(e.trace)
					return false
				}
				next, nextNumbers = append(next, to), append(nextNumbers, at)
				return true
			})
			if frontier[i] = nil; e.fault != "" || len(origins) >= limit {
				e.states, e.depth = len(origins), e.depth+1
				return e
			}
		}
		frontier, numbers = next, nextNumbers
	}
	e.states, e.complete = len(origins), len(frontier) == 0
	return e
}

// canonical is the state as bytes: equal for states that no decision can distinguish.
func (w *world) canonical(b []byte) []byte {
	names := map[string]uint64{} // an end's text is numbered by its first appearance
	number := func(n uint64) { b = binary.AppendUvarint(b, n) }
	text := func(s string) { b = append(append(b, s...), 0) }
	ends := func(s string) {
		if _, known := names[s]; !known && s != "" {
			names[s] = uint64(len(names) + 1)
		}
		number(names[s])
	}
	table := func(t *leasetest.Table) {
		number(uint64(t.Server))
		text(t.Birth)
		number(t.Newest)
		for _, r := range t.Read(ever).Rows {
			w.dumpRow(r, number, text, ends)
		}
		text("|")
	}
	table(&w.table)
	if w.failovers > 0 {
		table(&w.replica)
	}
	for _, n := range []int{w.losses, w.failovers, w.starts, w.strays, w.births} {
		number(uint64(n))
	}
	for i := range w.relays {
		w.relays[i].dump(number, text, ends)
	}
	return b
}

// Every interleaving of three relays. EXPLORE is the number of states for a longer run; `make test-long` sets it.
func TestNeverDoTwoRelaysHoldOneTable(t *testing.T) {
	limit := 40_000
	if text := os.Getenv("EXPLORE"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		limit = n
	}
	for name, b := range worlds() {
		t.Run(name, func(t *testing.T) {
			e := explore(b, 1000, limit)
			if e.fault != "" {
				t.Fatalf("%s after %d states:\n%s", e.fault, e.states, strings.Join(e.trace, "\n"))
			}
			t.Logf("%d states by %d steps, to depth %d, complete: %v", e.states, e.steps, e.depth, e.complete)
		})
	}
}

// The exploration finds a fault when the rule against it is removed.
func TestExplorationFindsWhatIsTakenAway(t *testing.T) {
	for name, c := range mutants() {
		t.Run(name, func(t *testing.T) {
			e := explore(c, 1000, 100_000)
			if e.fault == "" {
				t.Fatalf("%d states, depth %d: nothing found", e.states, e.depth)
			}
			t.Logf("%s after %d states: %s", e.fault, e.states, fmt.Sprint(strings.Join(e.trace, "; ")))
		})
	}
}
