package recovery

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A reader that dies at the same transaction again and again goes back and forth: that is no progress.
func TestReadingTheSameRangeAgainIsNoProgress(t *testing.T) {
	var s stall
	now := time.Now()
	for i := range 20 {
		at := outbox.Position{File: "binlog.000001", Offset: uint64(100 - i%2)}
		left := s.left(now, at, false, 10*time.Second)
		if (left <= 0) != (i >= 10) {
			t.Fatalf("after %d s: %v left", i, left)
		}
		now = now.Add(time.Second)
	}
}
