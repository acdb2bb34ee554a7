package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/harm"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// backlog is how many rows wait in the table when the relay starts; HARM_BACKLOG makes it more, for a long run.
func backlog(t *testing.T) int {
	text := os.Getenv("HARM_BACKLOG")
	if text == "" {
		return 50_000
	}
	n, err := strconv.Atoi(text)
	testkit.Must(t, err)
	return n
}

// The relay sweeps a large backlog each second, marks it and publishes new rows, and an ALTER TABLE runs. Meanwhile no statement
// of the application fails, is the victim of a deadlock, or waits for a lock of the relay. The backlog does not delay fresh
// rows: they come through the log and are SENT while a part of it waits.
func TestP7_P9_D06_D07_D08_D17_NoHarm(t *testing.T) {
	relay.Long(t)
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
			cluster := fake(t)
			schema := db.CreateSchema(t)
			pool := db.Connect(t, schema)
			table := relay.NewTable(t, pool, schema, "t_local_message")
			testkit.Must(t, db.CreateUser(t.Context(), "relay", "secret",
				"REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT, UPDATE ON "+schema+".*"))
			l := &stage{t: t, db: db, sql: pool, broker: cluster, table: table}
			l.Relay = relay.New(t, relay.Options{
				Source: db.Addr(), User: "user: relay, password: secret", Tables: []*relay.Table{table}, Sink: cluster.Sink(),
			})
			app := harm.New(t, table, topics[0], "fresh")
			waiting := backlog(t)
			l.fill(waiting)
			testkit.Must(t, db.Purge(t.Context())) // so that the sweep has all of it
			watch := harm.Watch(t, db, "relay")
			l.Start(t)
			altered := make(chan struct{})
			go func() {
				defer close(altered)
				if _, err := pool.Exec("ALTER TABLE t_local_message ADD COLUMN extra INT NULL"); err != nil {
					t.Errorf("ALTER TABLE: %v", err)
				}
			}()
			swept := func() bool { return table.Count(t, "biz_type = 'backlog' AND status = 2") == waiting }
			done := make(chan struct{})
			go func() {
				defer close(done)
				for end := time.Now().Add(patience); !swept() && time.Now().Before(end); {
					<-time.After(200 * time.Millisecond)
				}
			}()
			left := make(chan int, 1) // of the backlog, when the first fresh rows are SENT
			go func() {
				for end := time.Now().Add(patience); table.Count(t, "biz_type = 'harm' AND status = 2") < 10 && time.Now().Before(end); {
					<-time.After(20 * time.Millisecond)
				}
				left <- table.Count(t, "biz_type = 'backlog' AND status <> 2")
			}()
			result := app.Run(t, 10*time.Millisecond, func(elapsed time.Duration) bool {
				select {
				case <-done:
					return elapsed < 5*time.Second
				default:
					return true
				}
			})
			<-altered
			if n := <-left; n == 0 {
				t.Error("the fresh rows came after the backlog")
			}
			for _, err := range result.Errors {
				t.Errorf("the application had an error: %v", err)
			}
			l.waitCount(waiting+result.Rows, "status = 2 AND retry_count = 0")
			watch.Stop()
			seen, samples := watch.Counts()
			if seen > 0 {
				t.Errorf("the application was seen waiting for a lock of the relay %d times in %d samples", seen, samples)
			}
			if samples == 0 {
				t.Error("no lock waits were sampled")
			}
			copies := l.published(topics[0])
			if len(copies) != waiting+result.Rows {
				t.Errorf("%d of %d messages were published", len(copies), waiting+result.Rows)
			}
			for key, n := range copies {
				if n > 1 {
					t.Errorf("%s was published %d times", key, n)
				}
			}
			t.Logf("%d rows of backlog, %d fresh ones; transactions of the application: p50 %v, p99 %v, slowest %v; %d looks at the locks",
				waiting, result.Rows, result.Percentile(.5), result.Percentile(.99), result.Percentile(1), samples)
			l.stopInTime()
		})
	}
}

// fill writes rows that are due since long, with keys of their own.
func (l *stage) fill(n int) {
	l.t.Helper()
	const chunk = 1000
	for at := 0; at < n; at += chunk {
		rows := make([]relay.Row, min(chunk, n-at))
		for i := range rows {
			rows[i] = relay.Row{BizType: "backlog", Key: fmt.Sprint("b", at+i), Topic: topics[0], Body: []byte(`{"a body": "of some bytes"}`)}
		}
		testkit.Must(l.t, l.table.Insert(l.t.Context(), l.sql, rows...))
	}
}
