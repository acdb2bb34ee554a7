package recovery_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// P8: the window has rows of two tables, and one of them cannot be read though the server answers. The other's rows go out after ten seconds; those of the table
// are left to the sweep, and later ones at once. With one table, and while the server does not answer, the log waits.
func TestP8_ATableThatCannotBeReadStopsNoOtherInTheWindow(t *testing.T) {
	locked := &mysql.MySQLError{Number: 1205}
	for name, c := range map[string]struct {
		err     error
		several bool
		left    bool
	}{
		"locked":             {locked, true, true},
		"the only table":     {locked, false, false},
		"no answer":          {errors.New("i/o timeout"), true, false},
		"too many clients":   {&mysql.MySQLError{Number: 1040}, true, false},
		"a right is missing": {&mysql.MySQLError{Number: 1142}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Config{Several: c.several}, func(b *bench) {
				rows := []*outbox.Message{flowtest.Row(1, flowtest.In("shop.a")), flowtest.Row(2), flowtest.Row(3, flowtest.In("shop.a")), flowtest.Row(4), flowtest.Row(5, flowtest.In("shop.a")), flowtest.Row(6)}
				b.Pending(rows...)
				b.Fail("shop.a", c.err)
				b.connect(0, 3)
				offered := make(chan error, 1)
				go func() {
					for i := range 3 {
						if err := b.Offer(b.Ctx, b.Txn(rows[2*i], rows[2*i+1])); err != nil {
							offered <- err
							return
						}
						time.Sleep(3 * time.Second)
					}
					offered <- nil
				}()
				time.Sleep(9 * time.Second)
				b.WantSent()
				time.Sleep(21 * time.Second)
				synctest.Wait()
				if !c.left {
					b.WantSent()
					b.Fail("shop.a", nil)
					time.Sleep(20 * time.Second)
					b.WantSent("1", "2", "3", "4", "5", "6")
					return
				}
				b.WantSent("2", "4", "6")
				if err := <-offered; err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				if alone := b.Sweep(rows[0], rows[2], rows[4]); len(alone) > 0 {
					t.Errorf("the sweep may not take %v", alone)
				}
				b.Fail("shop.a", nil)
				time.Sleep(10 * time.Second)
				again := flowtest.Row(7, flowtest.In("shop.a"))
				b.Pending(again)
				b.connect(3, 4)
				b.OfferRows(again)
				b.WantSent("2", "4", "6", "1", "3", "5", "7")
				if b.Logs.FilterMessageSnippet("left to the sweep until it can be read").Len() != 1 || b.Logs.FilterMessageSnippet("are looked up in the table again").Len() != 1 {
					t.Errorf("the log has not one line for each change: %v", b.Logs.All())
				}
			})
		})
	}
}

// P8: several tables that cannot be read are waited for at the same time.
func TestP8_SeveralTablesThatCannotBeReadAreWaitedForTogether(t *testing.T) {
	run(t, Config{Several: true}, func(b *bench) {
		rows := []*outbox.Message{flowtest.Row(1, flowtest.In("shop.a")), flowtest.Row(2, flowtest.In("shop.b")), flowtest.Row(3, flowtest.In("shop.c")), flowtest.Row(4)}
		b.Pending(rows...)
		for _, m := range rows[:3] {
			b.Fail(m.Table, &mysql.MySQLError{Number: 1205})
		}
		b.connect(0, 1)
		b.Background(func(ctx context.Context) error { return b.Offer(ctx, b.Txn(rows...)) })
		time.Sleep(16 * time.Second)
		b.WantSent("4")
	})
}

// P3: rows of the window that a killed process has sent are not left to the sweep, also while their table cannot be read.
func TestP3_SentRowsOfATableThatCannotBeRead(t *testing.T) {
	flowtest.RunAfter(t, Config{Several: true}, flowtest.Table{}, had{"1": true}, func(w *flowtest.World) {
		b := &bench{w}
		rows := []*outbox.Message{flowtest.Row(1, flowtest.In("shop.a")), flowtest.Row(2, flowtest.In("shop.a")), flowtest.Row(3)}
		b.Pending(rows...)
		b.Fail("shop.a", &mysql.MySQLError{Number: 1205})
		b.connect(0, 1)
		b.Background(func(ctx context.Context) error { return b.Offer(ctx, b.Txn(rows...)) })
		time.Sleep(16 * time.Second)
		b.WantSent("3")
		if !b.Owns(rows[0].Identity) || b.Owns(rows[1].Identity) {
			t.Error("the row that was sent has no owner, or the other has one")
		}
	})
}
