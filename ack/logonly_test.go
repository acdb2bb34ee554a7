package ack

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A row whose table has no status goes into the journal and to no table. It leaves journal and registry, in this order, when a checkpoint
// behind it is durable.
func TestRowsWithoutAStatusStayInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newWorld())
		logOnly := completion(shop, 2, outbox.ActionMarkSent)
		logOnly.LogOnly = true
		b.Add([]outbox.Completion{completion(shop, 1, outbox.ActionMarkSent), logOnly})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if b.Pending() != 0 || b.journalled() != 1 {
			t.Fatalf("pending %d, in the journal %d", b.Pending(), b.journalled())
		}
		b.mu.Lock()
		b.passed = []outbox.Completion{logOnly}
		b.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantCalls(t, b.trace(),
			"settled [1 2]",
			"commit sent=[1 2] written=0 checkpoint=true",
			"apply [1] true",
			"written [1]",
			"commit sent=[] written=1 checkpoint=false",
			"commit sent=[] written=1 checkpoint=false",
			"written [2]",
		)
		if err := b.close(); err != nil || b.journalled() != 0 {
			t.Fatal(err, b.journalled())
		}
	})
}
