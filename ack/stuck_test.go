package ack

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A table counts as stuck when its own statuses fail for a while and many rows wait, and no more once they are written. Others do not, nor does it while no
// statement gets an answer, or if it is the only one.
func TestStuckTables(t *testing.T) {
	denied := &mysql.MySQLError{Number: 1142, Message: "UPDATE command denied"}
	for name, c := range map[string]struct {
		several bool
		err     error // of the table; nil: its rows are locked
		rows    int
		stuck   bool
	}{
		"denied":               {true, denied, 300, true},
		"few rows":             {true, denied, 299, false},
		"locked":               {true, nil, 300, true},
		"only one table":       {false, denied, 300, false},
		"the server away":      {true, errors.New("connection refused"), 300, false},
		"too many connections": {true, &mysql.MySQLError{Number: 1040, Message: "Too many connections"}, 300, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				var bad atomic.Bool
				bad.Store(true)
				w.onApply = func(_ context.Context, batch []outbox.Completion) (list []outbox.WriteError, err error) {
					if batch[0].Table != shop || !bad.Load() {
						return nil, nil
					}
					if c.err != nil {
						return nil, c.err
					}
					for _, one := range batch {
						list = append(list, outbox.WriteError{Completion: one, Retryable: true, Reason: "locked"})
					}
					return list, nil
				}
				b := run(t, build(w, Config{Several: c.several}))
				b.Add(completions(shop, 1, c.rows, outbox.ActionMarkSent))
				b.Add(completions("shop.free", 1, 1000, outbox.ActionMarkSent))
				time.Sleep(stuckAfter - time.Second)
				if tables, _, _ := b.Stuck(300, 1000); len(tables) != 0 {
					t.Errorf("stuck after %v: %v", stuckAfter-time.Second, tables)
				}
				time.Sleep(10 * time.Second)
				tables, rows, left := b.Stuck(300, 1000)
				if tables[shop] != c.stuck || tables["shop.free"] || left != 0 || c.stuck != (rows == c.rows) {
					t.Errorf("stuck: %v, %d rows, %d left", tables, rows, left)
				}
				bad.Store(false)
				time.Sleep(time.Minute)
				if tables, rows, _ := b.Stuck(300, 1000); len(tables)+rows != 0 {
					t.Errorf("stuck when all is written: %v, %d rows", tables, rows)
				}
				testMust(t, b.close())
			})
		})
	}
}
