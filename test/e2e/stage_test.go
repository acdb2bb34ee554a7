package e2e

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// topics that every fake cluster of a stage has.
var topics = []string{"orders", "payments"}

// stage is one relay between a database and a broker, with an application that writes.
type stage struct {
	*relay.Relay
	t      *testing.T
	db     *testkit.Database
	sql    *sql.DB
	table  *relay.Table
	load   *relay.Load
	broker relay.Broker
}

func newStage(t *testing.T, db *testkit.Database, b relay.Broker, extra string) *stage {
	t.Helper()
	return newStageAt(t, db, db.Addr(), b, extra)
}

// newStageAt lets the relay, not the application, reach the database at another address.
func newStageAt(t *testing.T, db *testkit.Database, source string, b relay.Broker, extra string) *stage {
	t.Helper()
	schema := db.CreateSchema(t)
	pool := db.Connect(t, schema)
	pool.SetMaxIdleConns(16)
	l := &stage{t: t, db: db, sql: pool, broker: b, table: relay.NewTable(t, pool, schema, "t_local_message")}
	l.load = relay.NewLoad(t, l.table, b.TakesEmpty(), topics...)
	l.Relay = relay.New(t, relay.Options{Source: source, Tables: []*relay.Table{l.table}, Sink: b.Sink(), Extra: extra})
	return l
}

// fake is a cluster of one broker with the topics.
func fake(t *testing.T) *fakekafka.Cluster {
	t.Helper()
	return fakekafka.New(t, 1, map[string]int{topics[0]: 4, topics[1]: 4})
}

func (l *stage) exec(query string, args ...any) {
	l.t.Helper()
	testkit.Exec(l.t, l.sql, query, args...)
}

// number is the only value of a query.
func (l *stage) number(query string, args ...any) (n int) {
	l.t.Helper()
	testkit.Must(l.t, l.sql.QueryRow(query, args...).Scan(&n))
	return n
}

func (l *stage) wait(what string, condition func() bool) {
	l.t.Helper()
	testkit.WaitFor(l.t, patience, what, condition)
}

func (l *stage) waitCount(n int, where string) {
	l.t.Helper()
	l.wait(fmt.Sprintf("%d rows with %s", n, where), func() bool { return l.table.Count(l.t, where) == n })
}

// settled waits until every row that the load committed is SENT, and makes the account. No row may have lost a try.
func (l *stage) settled() relay.Account {
	l.t.Helper()
	l.allSent()
	return l.account()
}

// settledAfterOutages is settled where the relay itself may have sent messages again. The order of a key is promised without that only
// (P5): half-open trials are of different messages, and one that succeeds may come before an older one of its key. While the
// client has carried every message through, the order is promised and looked at.
func (l *stage) settledAfterOutages() relay.Account {
	l.t.Helper()
	l.allSent()
	again := 0.0
	for outcome, n := range l.metricBy("messages_total", "outcome") {
		if outcome != outbox.ClassNone.String() {
			again += n
		}
	}
	a := l.load.Ledger.Compare(relay.ReadAll(l.t, l.broker, topics...))
	if again > 0 {
		l.t.Logf("%v messages came back to the relay, keys out of commit order: %q", again, a.Disorder)
		a.Disorder = nil
	}
	a.Check(l.t)
	return a
}

// allSent waits until every row that the load committed is SENT. No row may have lost a try.
func (l *stage) allSent() {
	l.t.Helper()
	want := l.load.Ledger.Len()
	l.wait(fmt.Sprintf("%d rows SENT", want), func() bool {
		return l.table.Count(l.t, "status = 2") >= want && l.table.Count(l.t, "status IN (0, 1)") == 0
	})
	if n := l.table.Count(l.t, "retry_count <> 0 OR fail_reason IS NOT NULL OR status <> 2"); n > 0 {
		l.t.Errorf("%d rows lost a try or have a reason of failure", n)
	}
}

func (l *stage) account() relay.Account {
	l.t.Helper()
	a := l.load.Ledger.Compare(relay.ReadAll(l.t, l.broker, topics...))
	a.Check(l.t)
	return a
}

// row writes one row that the ledger does not know.
func (l *stage) row(key, topic, body string) {
	l.t.Helper()
	testkit.Must(l.t, l.table.Insert(l.t.Context(), l.sql, relay.Row{BizType: "order", Key: key, Topic: topic, Body: []byte(body)}))
}

// published counts the copies of each message by its key.
func (l *stage) published(names ...string) map[string]int {
	l.t.Helper()
	copies := map[string]int{}
	for _, r := range relay.ReadAll(l.t, l.broker, names...) {
		copies[r.Key]++
	}
	return copies
}

func (l *stage) breaker() string {
	s, err := l.Status()
	if err != nil {
		return ""
	}
	return s.Sink.Breaker
}

// stopInTime ends the relay with SIGTERM. A stop that waits for a broker or a database never ends here, because none comes back during
// the stop, and Stop fails the test after its deadline.
func (l *stage) stopInTime() {
	l.t.Helper()
	l.Stop(l.t)
}

// metrics are the sums of the relay's metrics over their labels.
func (l *stage) metrics() map[string]float64 {
	l.t.Helper()
	return l.Metrics(l.t).Sums()
}

// metricBy adds a counter up for each value of one of its labels.
func (l *stage) metricBy(name, label string) map[string]float64 {
	l.t.Helper()
	return l.Metrics(l.t).By(l.t, name, label)
}
