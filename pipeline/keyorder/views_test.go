package keyorder

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// What a person is shown: the key that waits longest, the row that it waits for, and why.
func TestTheRowThatAKeyWaitsForIsShown(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		w.o.limit, w.o.limits = 100, Limits{Rows: 100, Behind: 100, AllBehind: tracker.Limit{Rows: 100, Bytes: 1 << 20}}
		for w.o.tables["shop.t"].reading != complete {
			w.read()
		}
		for range 3 {
			w.commit("a")
			w.show()
			w.offer("come")
		}
		if _, _, waits := w.o.WaitsFor(w.rows[1].Identity); waits {
			rt.Error("a row behind one at the sink is not left and waits for none")
		}
		w.answer(0, "refused")
		first, why, waits := w.o.WaitsFor(w.rows[2].Identity)
		if !waits || first != w.rows[0].Identity || why != "refused" {
			rt.Errorf("row 3 waits %v for %v: %s", waits, first, why)
		}
		if _, _, waits := w.o.WaitsFor(first); waits {
			rt.Error("the first row waits")
		}
		list := w.o.WaitingKeys(10)
		if len(list) != 1 || list[0].MessageID != "m1" || list[0].Rows != 3 || list[0].Reason != "refused" || !list[0].Since.Equal(w.now) {
			rt.Errorf("waiting keys: %+v", list)
		}
	})
}

// A row that its producer delays is not in the order; one that is due now, or waits for its retry, has.
func TestADelayedRowIsPostponed(t *testing.T) {
	for _, c := range []struct {
		row  outbox.Candidate
		want bool
	}{
		{outbox.Candidate{}, false},
		{outbox.Candidate{Waiting: true, DueInMilli: outbox.DueSlack.Milliseconds()}, false},
		{outbox.Candidate{Waiting: true, DueInMilli: time.Minute.Milliseconds()}, true},
		{outbox.Candidate{Waiting: true, DueInMilli: time.Minute.Milliseconds(), RetryCount: 1}, false},
	} {
		if got := c.row.Postponed(); got != c.want {
			t.Errorf("%+v is postponed: %v", c.row, got)
		}
	}
}
