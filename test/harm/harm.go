// Package harm is an application that writes business rows and outbox rows at REPEATABLE READ and records every effect of other
// sessions: errors, deadlocks, waits for locks, slow transactions.
//
// Goroutines: Run has one for each writer, a Watcher one that samples the server's lock waits; all have ended when Run returns
// and when Watcher.Stop does.
package harm

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// Writers is the number of the application's connections.
const Writers = 8

// Application writes to a table of the preset t_local_message.
type Application struct {
	Table *relay.Table
	Topic string

	prefix string
	number [Writers]int
}

// New returns the application and creates its own table. The keys of its rows begin with prefix.
func New(t testing.TB, table *relay.Table, topic, prefix string) *Application {
	t.Helper()
	table.DB.SetMaxIdleConns(2 * Writers)
	testkit.Exec(t, table.DB, "CREATE TABLE IF NOT EXISTS account (id INT PRIMARY KEY, total BIGINT NOT NULL)")
	for i := range Writers {
		testkit.Exec(t, table.DB, "INSERT IGNORE INTO account VALUES (?, 0)", i)
	}
	return &Application{Table: table, Topic: topic, prefix: prefix}
}

// Result is what the application measured.
type Result struct {
	Rows      int             // outbox rows committed
	Latencies []time.Duration // of the transactions, ascending
	Errors    []error
}

// Percentile returns the quantile p of the latencies.
func (r Result) Percentile(p float64) time.Duration {
	if len(r.Latencies) == 0 {
		return 0
	}
	return r.Latencies[min(len(r.Latencies)-1, int(p*float64(len(r.Latencies))))]
}

// Run writes until more returns false, one transaction per pause in each connection.
func (a *Application) Run(t testing.TB, pause time.Duration, more func(elapsed time.Duration) bool) Result {
	t.Helper()
	var (
		mu     sync.Mutex
		result Result
		group  sync.WaitGroup
		began  = time.Now()
	)
	for i := range Writers {
		conn, err := a.Table.DB.Conn(t.Context())
		testkit.Must(t, err)
		for _, s := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET SESSION innodb_lock_wait_timeout = 1"} {
			_, err := conn.ExecContext(t.Context(), s)
			testkit.Must(t, err)
		}
		group.Go(func() {
			defer conn.Close()
			ticker := time.NewTicker(pause)
			defer ticker.Stop()
			for more(time.Since(began)) {
				<-ticker.C
				start := time.Now()
				rows, err := a.transaction(t.Context(), conn, i)
				took := time.Since(start)
				mu.Lock()
				if err != nil {
					result.Errors = append(result.Errors, err)
				} else {
					result.Rows += rows
					result.Latencies = append(result.Latencies, took)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(result.Latencies)
	return result
}

// transaction is one business transaction: it reads, which fixes its view, changes its own row and adds outbox rows.
func (a *Application) transaction(ctx context.Context, conn *sql.Conn, writer int) (rows int, err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	var total int64
	if err := tx.QueryRowContext(ctx, "SELECT total FROM account WHERE id = ?", writer).Scan(&total); err != nil {
		return 0, err
	}
	n := 1 + a.number[writer]%3
	for range n {
		a.number[writer]++
		key := fmt.Sprintf("%s-%d-%d", a.prefix, writer, a.number[writer])
		if err := a.Table.Insert(ctx, tx, relay.Row{BizType: "harm", Key: key, Topic: a.Topic, Body: []byte(`{"a body": "of some bytes"}`)}); err != nil {
			return 0, err
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET total = total + ? WHERE id = ?", n, writer); err != nil {
		return 0, err
	}
	return n, tx.Commit()
}

// waits are queries for lock waits: the waiting session's user and the user of the lock's owner.
var waits = map[testkit.Flavor]string{
	testkit.MySQL: "SELECT w.processlist_user, b.processlist_user FROM performance_schema.data_lock_waits l " +
		"JOIN performance_schema.threads w ON w.thread_id = l.requesting_thread_id " +
		"JOIN performance_schema.threads b ON b.thread_id = l.blocking_thread_id",
	testkit.MariaDB: "SELECT pw.user, pb.user FROM information_schema.innodb_lock_waits l " +
		"JOIN information_schema.innodb_trx w ON w.trx_id = l.requesting_trx_id JOIN information_schema.innodb_trx b ON b.trx_id = l.blocking_trx_id " +
		"JOIN information_schema.processlist pw ON pw.id = w.trx_mysql_thread_id JOIN information_schema.processlist pb ON pb.id = b.trx_mysql_thread_id",
}

// every is the interval of these queries. MariaDB answers from a copy that it renews only after 100 ms without a query
// (CACHE_MIN_IDLE_TIME_NS in its trx0i_s.cc): more frequent queries get the first answer for ever.
var every = map[testkit.Flavor]time.Duration{testkit.MySQL: 10 * time.Millisecond, testkit.MariaDB: 150 * time.Millisecond}

// asks is the flavor whose query a server understands: before 8.0, MySQL has the tables that MariaDB kept.
func asks(db *testkit.Database) testkit.Flavor {
	if db.Before(8, 0) {
		return testkit.MariaDB
	}
	return db.Flavor
}

// Watcher samples the lock waits of a server.
type Watcher struct {
	seen, samples atomic.Int64
	end, done     chan struct{}
	once          sync.Once
}

// Watch counts how often a session of another user waits for a lock of user, until Stop is called or the test ends.
func Watch(t testing.TB, db *testkit.Database, user string) *Watcher {
	t.Helper()
	w := &Watcher{end: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		ticker := time.NewTicker(every[asks(db)])
		defer ticker.Stop()
		for {
			select {
			case <-w.end:
				return
			case <-ticker.C:
			}
			n, err := sample(db, user)
			if err != nil {
				t.Errorf("query the lock waits: %v", err)
				return
			}
			w.seen.Add(int64(n))
			w.samples.Add(1)
		}
	}()
	t.Cleanup(w.Stop)
	return w
}

// Counts returns the number of waits seen, and of samples.
func (w *Watcher) Counts() (seen, samples int64) { return w.seen.Load(), w.samples.Load() }

// Stop ends the watch.
func (w *Watcher) Stop() {
	w.once.Do(func() { close(w.end) })
	<-w.done
}

func sample(db *testkit.Database, user string) (seen int, err error) {
	rows, err := db.Root().Query(waits[asks(db)])
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var waiting, blocking sql.NullString
		if err := rows.Scan(&waiting, &blocking); err != nil {
			return 0, err
		}
		if blocking.String == user && waiting.String != user {
			seen++
		}
	}
	return seen, rows.Err()
}
