package fallback

import (
	"slices"
	"testing"
	"testing/synctest"
)

// G12: a batch is read back piece by piece, and each piece is sent to the sink before the next is read.
func TestG12_EachPieceIsHandedOverBeforeTheNextIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1), old(2), old(3))
		w.piece = 1
		w.onRead = func() error { w.alter(func() { w.calls = append(w.calls, "read") }); return nil }
		b := start(t, w)
		want(t, "the batch", b.got(), 1, 2, 3)
		calls := slices.DeleteFunc(look(w, &w.calls), func(call string) bool { return call != "read" && call != "publish" })
		if !slices.Equal(calls, []string{"read", "publish", "read", "publish", "read", "publish"}) {
			t.Errorf("calls %q", calls)
		}
	})
}
