package ack

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A row whose table has no status is written to the journal and to no table. It is removed from journal and registry, in this
// order, when a later checkpoint is durable.
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

// It is removed also when the checkpoint that passes it is the last one of a stop.
func TestTheLastCheckpointForgetsRowsWithoutAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b := start(t, w)
		logOnly := completion(shop, 1, outbox.ActionMarkSent)
		logOnly.LogOnly = true
		b.Add([]outbox.Completion{logOnly})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.Add([]outbox.Completion{completion(shop, 2, outbox.ActionMarkSent)})
		w.onCommit = func(sent []outbox.Completion) error {
			if len(sent) == 0 { // the status of 2 is written, and no earlier checkpoint was after 1
				w.mu.Lock()
				w.passed = []outbox.Completion{logOnly}
				w.mu.Unlock()
				w.onCommit = nil
			}
			return nil
		}
		if err := b.close(); err != nil || b.journalled() != 0 {
			t.Fatal(err, b.trace())
		}
	})
}
