package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// G13, P9: the application changes a late row and then an early one, and a statement of the relay names both with many others in between. Without
// the read that skips locked rows the statement would hold the early one while it waits for the late one, and the server would end the
// application's transaction, which has changed less.
func TestG13_TheApplicationIsNoDeadlockVictim(t *testing.T) {
	for what, run := range writes {
		t.Run(what, func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				ids := b.InsertMany(500)
				b.patient(50)
				victims := 0
				for range 5 {
					victims += b.crossing(ids, func() error { return run(b, ids) })
				}
				if victims > 0 {
					b.Errorf("the application was the victim of %d of 5 deadlocks", victims)
				}
			})
		})
	}
}

// crossing lets the application change row 400 and then row 10 in one transaction; run begins in between. It returns 1 if the server ended the
// application's transaction for a deadlock.
func (b *bench) crossing(ids []outbox.Identity, run func() error) (victims int) {
	b.Helper()
	testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status = 0")
	ctx, cancel := context.WithTimeout(b.Ctx, 3*time.Minute)
	defer cancel()
	tx, err := b.DB.BeginTx(ctx, nil)
	testkit.Must(b, err)
	change := func(id outbox.Identity) error {
		_, err := tx.ExecContext(ctx, "UPDATE "+b.Quoted+" SET tag = 'x' WHERE id = "+id.ID)
		return err
	}
	testkit.Must(b, change(ids[400]))
	before, done := b.lockWaits(), make(chan error, 1)
	go func() { done <- run() }()
	ended := false
	testkit.WaitFor(b, time.Minute, "the relay's statement to wait or to end", func() bool {
		select {
		case err := <-done:
			testkit.Must(b, err)
			ended = true
		default:
		}
		var sent int
		testkit.Must(b, b.DB.QueryRow("SELECT COUNT(*) FROM "+b.Quoted+" WHERE status <> 0").Scan(&sent))
		return ended || sent > 0 || b.lockWaits() > before
	})
	switch err := change(ids[10]); {
	case server.Code(err) == 1213:
		victims = 1
		b.Log(b.lastDeadlock())
		testkit.Must(b, tx.Rollback())
	default:
		testkit.Must(b, err)
		testkit.Must(b, tx.Commit())
	}
	if !ended {
		testkit.Must(b, <-done)
	}
	return victims
}

// lastDeadlock is what the server says about it: both statements, the locks that they held and the one that each waited for.
func (b *bench) lastDeadlock() string {
	b.Helper()
	var kind, name, text string
	testkit.Must(b, b.DB.QueryRow("SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &text))
	_, text, _ = strings.Cut(text, "LATEST DETECTED DEADLOCK")
	text, _, _ = strings.Cut(text, "\nTRANSACTIONS\n")
	return text[:min(len(text), 8000)]
}

// A server without SKIP LOCKED is given smaller statements; rows that are free are written and claimed, and a locked one is left out.
func TestG13_WithoutSkipLocked(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(50)
		b.table.waits.Store(true)
		tx := b.lock(ids[7])
		var batch []outbox.Candidate
		for _, id := range ids {
			batch = append(batch, outbox.Candidate{Identity: id, Status: outbox.Pending})
		}
		stamp, err := b.store.Claim(b.Ctx, batch)
		testkit.Must(b, err)
		messages, _, err := b.store.ReadBack(b.Ctx, stamp, ids)
		testkit.Must(b, err)
		if len(messages) != 49 {
			b.Errorf("%d rows were claimed", len(messages))
		}
		testkit.Must(b, tx.Rollback())
		var sent []outbox.Completion
		for _, id := range ids {
			sent = append(sent, outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
		}
		if left := b.apply(sent...); len(left) > 0 {
			b.Errorf("handed back: %+v", left)
		}
		b.Want(ids[7], "2", "status")
	})
}
