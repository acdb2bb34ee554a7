package tracker

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
)

const uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

func newTestLowWater(t interface{ Fatal(...any) }) *lowWater {
	m, err := newLowWater(outbox.MySQL, outbox.Position{File: "binlog.000001", Offset: 4})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func end(n uint64) outbox.Position { return outbox.Position{File: "binlog.000001", Offset: 100 * n} }

// D25: against a naive model that remembers everything, for any order of completions.
func TestD25_LowWaterAgainstNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newTestLowWater(t)
		type txn struct {
			seq  uint64
			open int
		}
		var model []txn
		rows := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 30).Draw(t, "rows")
		check := func() {
			low := uint64(0)
			set := outbox.NewGTIDSet(outbox.MySQL)
			for i, x := range model {
				if x.open > 0 {
					break
				}
				low = uint64(i + 1)
				set.Add(outbox.GTID{Source: uuid, Seq: low})
			}
			got := m.position()
			want := end(low)
			if low == 0 {
				want = outbox.Position{File: "binlog.000001", Offset: 4}
			}
			if got.File != want.File || got.Offset != want.Offset || got.GTIDs != set.String() {
				t.Fatalf("low-water mark at %v (%s), model at %v (%s)", got, got.GTIDs, want, set)
			}
		}
		next := 0
		for next < len(rows) || func() bool {
			for _, x := range model {
				if x.open > 0 {
					return true
				}
			}
			return false
		}() {
			var unsettled []int
			for i, x := range model {
				if x.open > 0 {
					unsettled = append(unsettled, i)
				}
			}
			if next < len(rows) && (len(unsettled) == 0 || rapid.Bool().Draw(t, "open")) {
				n := uint64(next + 1)
				seq := m.open(end(n), outbox.GTID{Source: uuid, Seq: n}, rows[next])
				if (seq == 0) != (rows[next] == 0) {
					t.Fatalf("sequence number %d for %d rows", seq, rows[next])
				}
				model = append(model, txn{seq, rows[next]})
				next++
			} else {
				i := rapid.SampledFrom(unsettled).Draw(t, "settle")
				if err := m.settle(model[i].seq); err != nil {
					t.Fatal(err)
				}
				model[i].open--
			}
			check()
		}
		if len(m.slots) != 0 {
			t.Fatalf("%d slots are left", len(m.slots))
		}
	})
}

func TestLowWaterReportsDoubleAndUnknownCompletions(t *testing.T) {
	m := newTestLowWater(t)
	first := m.open(end(1), outbox.GTID{}, 1)
	second := m.open(end(2), outbox.GTID{}, 1)
	if err := m.settle(second + 1); err == nil {
		t.Error("a transaction that was never opened was settled")
	}
	if err := m.settle(second); err != nil {
		t.Fatal(err)
	}
	if err := m.settle(second); err == nil {
		t.Error("settled twice while open")
	}
	if err := m.settle(first); err != nil {
		t.Fatal(err)
	}
	if err := m.settle(first); err == nil {
		t.Error("settled twice after it had left")
	}
	third := m.open(end(3), outbox.GTID{}, 1)
	if err := m.reset(outbox.MySQL, end(9)); err != nil {
		t.Fatal(err)
	}
	if err := m.settle(third); err != nil {
		t.Errorf("a transaction forgotten by reset is not an error: %v", err)
	}
}

// A million foreign transactions behind an open one take one slot.
func TestLowWaterMergesForeignTransactions(t *testing.T) {
	m := newTestLowWater(t)
	seq := m.open(end(1), outbox.GTID{Source: uuid, Seq: 1}, 1)
	for n := uint64(2); n <= 1_000_000; n++ {
		m.open(end(n), outbox.GTID{Source: uuid, Seq: n}, 0)
	}
	if len(m.slots) != 2 {
		t.Fatalf("%d slots", len(m.slots))
	}
	if err := m.settle(seq); err != nil {
		t.Fatal(err)
	}
	if got := m.position(); got.GTIDs != uuid+":1-1000000" || got.Offset != end(1_000_000).Offset {
		t.Fatalf("low-water mark at %v %s", got, got.GTIDs)
	}
}
