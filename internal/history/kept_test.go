package history

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"go.uber.org/zap"
)

// shelf is a Store in memory.
type shelf map[uint64][]byte

func (s shelf) Save(slot uint64, piece []byte) error {
	s[slot] = slices.Clone(piece)
	return nil
}

func (s shelf) All(each func(uint64, []byte)) error {
	for slot, piece := range s {
		each(slot, piece)
	}
	return nil
}

// A restart keeps the samples and the marks, in their order; a damaged piece is left out alone; what is stored is bounded.
func TestG46_ThePastSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := shelf{}, &relay{breaker: "closed"}
		keep := func() *Recorder {
			rec := NewRecorder()
			if err := rec.Keep(store, zap.NewNop()); err != nil {
				t.Fatal(err)
			}
			return rec
		}
		first := keep()
		run(first, r.watched(), func() {
			r.set(func() { r.sent = 500 })
			time.Sleep(10500 * time.Millisecond)
			first.Mark(time.Now(), "table", "shop.t was dropped")
			time.Sleep(2 * time.Second)
		})
		store[17], store[markSlots+17] = []byte{1, 2}, []byte("{")
		second := keep()
		run(second, r.watched(), func() { time.Sleep(10500 * time.Millisecond) })
		got := second.Timeline(ago(time.Minute, 10*time.Second), nil)
		same(t, "rates of both processes", numbers(got, "sent_per_second"), 50, -1, 0)
		var marks []string
		for _, m := range got.Marks {
			marks = append(marks, m.Kind)
		}
		if !slices.Equal(marks, []string{"start", "table", "start"}) {
			t.Errorf("marks %v", marks)
		}
		run(second, r.watched(), func() {
			for range 3 * maxMarks {
				second.Mark(time.Now(), "breaker", "open")
				time.Sleep(time.Second)
			}
			time.Sleep(26 * time.Hour)
		})
		if n := len(store); n > maxSamples+maxMarks+1 { // and the damaged mark, whose number comes again
			t.Errorf("%d pieces are stored", n)
		}
		third := keep()
		if len(third.samples) != maxSamples || len(third.marks) != maxMarks {
			t.Errorf("%d samples and %d marks come back", len(third.samples), len(third.marks))
		}
		a, b := second.Timeline(ago(24*time.Hour, time.Minute), nil), third.Timeline(ago(24*time.Hour, time.Minute), nil)
		if !slices.Equal(a.At, b.At) || !slices.EqualFunc(a.Marks, b.Marks, func(x, y operator.Mark) bool { return x.At.Equal(y.At) && x.Text == y.Text }) {
			t.Error("the restart shows another past")
		}
	})
}
