package tracker

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A window is full by count, by bytes, or by the share of the rows that the log did not bring; an empty one takes any row.
func TestALimitBoundsCountBytesAndShares(t *testing.T) {
	l := Limit{Rows: 8, Bytes: 100}
	for _, c := range []struct {
		w    Window
		path outbox.Path
		want bool
	}{
		{Window{}, outbox.PathRedelivery, true},
		{Window{7, 99, 0}, outbox.PathBinlog, true},
		{Window{8, 10, 0}, outbox.PathBinlog, false},
		{Window{1, 100, 0}, outbox.PathBinlog, false},
		{Window{7, 10, 7}, outbox.PathBinlog, true},
		{Window{7, 10, 6}, outbox.PathTimer, false},
		{Window{7, 10, 5}, outbox.PathTimer, true},
		{Window{7, 10, 4}, outbox.PathSweep, false},
		{Window{7, 10, 3}, outbox.PathSweep, true},
		{Window{7, 10, 2}, outbox.PathRedelivery, false},
		{Window{7, 10, 1}, outbox.PathRedelivery, true},
		{Window{8, 10, 0}, outbox.PathRedelivery, false},
	} {
		if got := l.Room(c.w, c.path); got != c.want {
			t.Errorf("%+v, %v: room %v", c.w, c.path, got)
		}
	}
	var w Window
	row := &Entry{Size: 5, origin: fromSweep}
	w.Add(row)
	w.Add(&Entry{Size: 7})
	w.Remove(row)
	if sum := w.Plus(Window{1, 2, 3}); sum != (Window{2, 9, 3}) {
		t.Errorf("sum %+v", sum)
	}
}
