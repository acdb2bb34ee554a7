package bench

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// share is a number, or with -short a tenth of it: a quick check that everything works.
func share(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// load is an application that writes rows into a table of its own on a durable server.
type load struct {
	db    *testkit.Database
	table *relay.Table
	topic string
	next  int // number of the last row
}

// newLoad creates the table of a preset.
func newLoad(b testing.TB, db *testkit.Database, preset string) load {
	b.Helper()
	schema := db.CreateSchema(b)
	pool := db.Connect(b, schema)
	pool.SetMaxIdleConns(64)
	if preset == logOnly.Table {
		return load{db: db, table: relay.NewLayout(b, pool, schema, logOnly), topic: topic}
	}
	return load{db: db, table: relay.NewTable(b, pool, schema, preset), topic: topic}
}

// logOnly is a table without a status.
var logOnly = layouts.LogOnly()[0]

// durable starts a server that flushes its logs at each commit.
func durable(b testing.TB, flavor testkit.Flavor) *testkit.Database {
	b.Helper()
	return testkit.NewDatabase(b, testkit.DatabaseOptions{Flavor: flavor, Durable: true})
}

// rows returns the next n rows, with 500-byte bodies that compress badly. They are JSON texts, as the layout without a status has them.
func (l *load) rows(n int) []relay.Row {
	out := make([]relay.Row, n)
	for i := range out {
		l.next++
		body := bytes.Repeat([]byte(strconv.Itoa(l.next*2654435761)+"|"), bodySize/8)[:bodySize]
		body[0], body[bodySize-1] = '"', '"'
		out[i] = relay.Row{
			BizType: "order", Key: fmt.Sprint("k", l.next), ShardingKey: fmt.Sprint(l.next % keys), Topic: l.topic, Tag: "paid", Body: body, Number: l.next,
		}
	}
	return out
}

// fill commits n rows in transactions of size, over four connections.
func (l *load) fill(b testing.TB, n, size int) { l.commit(b, commits{rows: n, size: size}) }

// commits are rows that are written in transactions of size.
type commits struct {
	rows, size  int
	connections int            // 0: four
	perSecond   rate.Limit     // transactions; 0: as fast as they can
	into        []*relay.Table // one after the other, by transaction; none: the table of the load
	foreign     int            // updates of the table of another application for each row, each a transaction
}

// commit writes rows and returns when all transactions have ended.
func (l *load) commit(b testing.TB, c commits) {
	b.Helper()
	limit := rate.NewLimiter(cmp.Or(c.perSecond, rate.Inf), 1)
	type work struct {
		table *relay.Table
		rows  []relay.Row
	}
	queue := make(chan work)
	var group sync.WaitGroup
	for range cmp.Or(c.connections, 4) {
		group.Go(func() {
			for w := range queue {
				if err := w.table.Insert(context.Background(), w.table.DB, w.rows...); err != nil {
					b.Error(err)
				}
				for range c.foreign * len(w.rows) {
					if _, err := w.table.DB.Exec("UPDATE stock SET held = held + 1 WHERE id = ?", 1+rand.IntN(stockRows)); err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	if len(c.into) == 0 {
		c.into = []*relay.Table{l.table}
	}
	for n, left := 0, c.rows; left > 0; n, left = n+1, left-c.size {
		testkit.Must(b, limit.Wait(b.Context()))
		queue <- work{c.into[n%len(c.into)], l.rows(min(c.size, left))}
	}
	close(queue)
	group.Wait()
}

const stockRows = 100

// stock creates the table of the other application. The server no longer syncs, because its log is only read, and syncs would take
// minutes.
func (l *load) stock(b testing.TB) {
	b.Helper()
	testkit.Exec(b, l.table.DB, "CREATE TABLE IF NOT EXISTS stock (id INT PRIMARY KEY, held INT NOT NULL, note VARCHAR(300) NOT NULL)")
	for id := range stockRows {
		testkit.Exec(b, l.table.DB, "INSERT IGNORE INTO stock VALUES (?, 0, REPEAT('n', 200))", id+1)
	}
	testkit.Exec(b, l.db.Root(), "SET GLOBAL sync_binlog = 0, GLOBAL innodb_flush_log_at_trx_commit = 0")
}

// pace commits rows one by one at a rate, over eight connections. It returns the rows, the return times of their INSERTs, and the
// durations of these.
func (l *load) pace(b testing.TB, n int, perSecond rate.Limit) (rows []relay.Row, committed []time.Time, took []time.Duration) {
	limit := rate.NewLimiter(perSecond, 1)
	slots := make(chan struct{}, 8)
	rows, committed, took = l.rows(n), make([]time.Time, n), make([]time.Duration, n)
	for i, row := range rows {
		testkit.Must(b, limit.Wait(context.Background()))
		slots <- struct{}{}
		go func() {
			defer func(began time.Time) {
				committed[i], took[i] = time.Now(), time.Since(began)
				<-slots
			}(time.Now())
			if err := l.table.Insert(context.Background(), l.table.DB, row); err != nil {
				b.Error(err)
			}
		}()
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	return rows, committed, took
}
