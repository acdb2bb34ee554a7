package fallback

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Tables are not all looked at at once: each look has a connection.
func TestFewTablesAreLookedAtAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var at, most, all atomic.Int32
		w.onLook = func() error {
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			all.Add(1)
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		var tables []string
		for n := range 64 {
			tables = append(tables, fmt.Sprint(idle, n))
		}
		start(t, w, tables...)
		time.Sleep(2 * time.Second)
		if most.Load() != maxLooks || all.Load() < 64 {
			t.Errorf("%d looks, %d at a time", all.Load(), most.Load())
		}
	})
}
