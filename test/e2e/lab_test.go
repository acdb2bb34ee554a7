package e2e

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// What settings a lab begins with: the periodic sweep does not come in the way, so that what is published was brought by
// the log, a gap or a trigger; or it comes all the time.
const (
	rareSweeps     = "fallback: {interval: 1h, threshold: 1h, patience: 2s}"
	frequentSweeps = "fallback: {interval: 200ms, threshold: 1s, patience: 2s}"
)

// lab is one relay with its database, its broker and its state directory.
type lab struct {
	t      *testing.T
	db     *testkit.Database
	sql    *sql.DB
	schema string
	tables []string
	kafka  *kfake.Cluster
	broker string // the sink in the configuration; the lab's own when empty
	source string // the address in the configuration
	user   string
	// serverID under which the relay reads the log; 0: its own choice.
	serverID uint32
	dir      string
	more     string // sections of the configuration
	mapping  string // of the tables: more keys
	listen   string // the section admin; none when empty
	logs     *observer.ObservedLogs

	cancel context.CancelFunc
	ended  chan error
}

// newLab makes a schema with the table t_local_message, and a broker. The relay is not started.
func newLab(t *testing.T, db *testkit.Database, more ...string) *lab {
	t.Helper()
	schema := db.CreateSchema(t)
	l := &lab{t: t, db: db, sql: db.Connect(t, schema), schema: schema, source: db.Addr(), user: "root", more: cmp.Or(strings.Join(more, "\n"), rareSweeps)}
	l.table("t_local_message")
	var err error
	l.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	testkit.Must(t, err)
	l.dir, err = os.MkdirTemp("", "faults") // short: it holds a unix socket
	testkit.Must(t, err)
	t.Cleanup(func() {
		if l.cancel != nil {
			l.cancel()
			<-l.ended
		}
		l.kafka.Close()
		_ = os.RemoveAll(l.dir)
	})
	return l
}

// table makes one more outbox table.
func (l *lab) table(name string) {
	l.t.Helper()
	ddl, err := migrations.DDL("outbox", name)
	testkit.Must(l.t, err)
	testkit.Exec(l.t, l.sql, ddl)
	l.tables = append(l.tables, name)
}

func (l *lab) config() *config.Config {
	l.t.Helper()
	var tables []string
	for _, name := range l.tables {
		tables = append(tables, fmt.Sprintf("{name: %s.%s, preset: t_local_message%s}", l.schema, name, l.mapping))
	}
	if l.broker == "" {
		l.broker = fmt.Sprintf("kafka: {brokers: [%q]}", l.kafka.ListenAddrs()[0])
	}
	yaml := fmt.Sprintf("source: {address: %q, user: %s, server_id: %d}\ntables: [%s]\nsink: {%s}\n"+
		"checkpoint: {dir: %q}\nadmin: %s\n%s\n",
		l.source, l.user, l.serverID, strings.Join(tables, ", "), l.broker, l.dir, cmp.Or(l.listen, `{listen: ""}`), l.more)
	cfg, _, err := config.Parse("lab", []byte(yaml), nil, app.Sinks)
	testkit.Must(l.t, err)
	return cfg
}

// launch starts the relay and does not wait.
func (l *lab) launch(opts app.Options) {
	l.t.Helper()
	cfg := l.config()
	core, logs := observer.New(zap.InfoLevel)
	l.logs = logs
	log := zaptest.NewLogger(l.t, zaptest.WrapOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, core) })))
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.ended = cancel, make(chan error, 1)
	go func(ended chan<- error) { ended <- app.Run(ctx, cfg, opts, log) }(l.ended)
}

// start starts the relay and returns when it reads the log.
func (l *lab) start() {
	l.t.Helper()
	l.launch(app.Options{Version: "test"})
	l.reading()
}

func (l *lab) reading() {
	l.t.Helper()
	l.wait("the relay to read the log", func() bool {
		select {
		case err := <-l.ended:
			l.cancel = nil
			l.t.Fatalf("the relay ended: %v", err)
		default:
		}
		return l.metric("reader_connected") == 1
	})
}

// stop ends the relay in order.
func (l *lab) stop() {
	l.t.Helper()
	l.cancel()
	err := <-l.ended
	l.cancel = nil
	if err != nil {
		l.t.Fatalf("the relay stopped with: %v", err)
	}
}

// end waits for a relay that ends by itself.
func (l *lab) end() error {
	l.t.Helper()
	select {
	case err := <-l.ended:
		l.cancel = nil
		return err
	case <-time.After(patience):
		l.t.Fatal("the relay continues, it should have ended")
		return nil
	}
}

// wait waits for a condition, and logs what the relay says of itself if it does not come.
func (l *lab) wait(what string, condition func() bool) {
	l.t.Helper()
	met := false
	defer func() {
		if !met {
			l.explain()
		}
	}()
	testkit.WaitFor(l.t, patience, what, condition)
	met = true
}

func (l *lab) exec(query string, args ...any) {
	l.t.Helper()
	testkit.Exec(l.t, l.sql, query, args...)
}

// number is the only value of a query.
func (l *lab) number(query string, args ...any) (n int) {
	l.t.Helper()
	testkit.Must(l.t, l.sql.QueryRow(query, args...).Scan(&n))
	return n
}

// session is one connection to the schema, with settings of its own.
func (l *lab) session(statements ...string) *session {
	l.t.Helper()
	conn, err := l.sql.Conn(context.Background())
	testkit.Must(l.t, err)
	s := &session{t: l.t, conn: conn}
	l.t.Cleanup(s.close)
	s.exec(statements...)
	return s
}

// close ends the session on the server: back in the pool its settings would be others' as well. Twice is harmless.
func (s *session) close() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

type session struct {
	t    *testing.T
	conn *sql.Conn
}

func (s *session) exec(statements ...string) {
	s.t.Helper()
	for _, statement := range statements {
		if _, err := s.conn.ExecContext(context.Background(), statement); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// columns of an INSERT, and the values of one row.
const columns = "(biz_type, biz_key, topic, message_body)"

func values(keys ...string) string {
	var rows []string
	for _, key := range keys {
		rows = append(rows, fmt.Sprintf("('order', '%s', 'orders', '%s')", key, body(key)))
	}
	return " VALUES " + strings.Join(rows, ", ")
}

// insert is the statement of an ordinary producer.
func insert(keys ...string) string { return "INSERT INTO t_local_message " + columns + values(keys...) }

func body(key string) string { return "body of " + key }

// keys makes names: prefix0, prefix1 ...
func keys(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = prefix + strconv.Itoa(i)
	}
	return list
}

// commit inserts each row in a transaction of its own.
func (l *lab) commit(keys ...string) {
	l.t.Helper()
	for _, key := range keys {
		l.exec(insert(key))
	}
}

// sent waits until no row of any table is anything but sent.
func (l *lab) sent() {
	l.t.Helper()
	l.wait("all rows to be sent", func() bool {
		return !slices.ContainsFunc(l.tables, func(name string) bool { return l.number("SELECT COUNT(*) FROM "+name+" WHERE status <> 2") > 0 })
	})
}

// explain logs what the relay says of itself, and what is not sent of tables that can be read.
func (l *lab) explain() {
	l.t.Helper()
	status, err := l.admin().Status(context.Background())
	l.t.Logf("%+v %v", status, err)
	for _, name := range l.tables {
		one := l.session("SET SESSION lock_wait_timeout = 5")
		var rows sql.NullString
		err := one.conn.QueryRowContext(context.Background(), "SELECT GROUP_CONCAT(CONCAT_WS(' ', id, status, retry_count, next_retry_time, last_exec_time, created_at, NOW(6))) FROM (SELECT * FROM "+
			name+" WHERE status <> 2 LIMIT 20) unsent").Scan(&rows)
		l.t.Log(name, rows.String, err)
	}
}

// swept asks for a sweep over rows of any age and returns when one that began afterwards is complete.
func (l *lab) swept() {
	l.t.Helper()
	before := l.metric("sweep_runs_total", `result="complete"`)
	testkit.Must(l.t, l.admin().Sweep(context.Background()))
	// Two, because the first to complete may have begun before.
	l.wait("a sweep", func() bool {
		if l.metric("sweep_runs_total", `result="complete"`) > before+1 {
			return true
		}
		testkit.Must(l.t, l.admin().Sweep(context.Background()))
		return false
	})
}

func (l *lab) admin() *admin.Client { return admin.NewClient(config.Checkpoint{Dir: l.dir}.Socket()) }

// account waits until all rows are sent and nothing more is to come, and compares the broker with what was committed:
// each key once, with the body of its row, and nothing else.
func (l *lab) account(committed ...string) {
	l.t.Helper()
	l.sent()
	l.swept()
	l.compare(committed...)
}

// compare is the account without waiting.
func (l *lab) compare(committed ...string) {
	l.t.Helper()
	records := l.records()
	var lost, twice []string
	for _, key := range committed {
		got := records[key]
		switch {
		case len(got) == 0:
			lost = append(lost, key)
		case len(got) > 1:
			twice = append(twice, fmt.Sprintf("%s x%d", key, len(got)))
		}
		if len(got) > 0 && string(got[0].Value) != body(key) {
			l.t.Errorf("%s has the body %q", key, got[0].Value)
		}
		delete(records, key)
	}
	var invented []string
	for key := range records {
		invented = append(invented, key)
	}
	slices.Sort(invented)
	if len(lost)+len(twice)+len(invented) > 0 {
		l.t.Fatalf("of %d committed rows %d are lost %.10q, %d were published more than once %.10q; %d were never committed %.10q",
			len(committed), len(lost), lost, len(twice), twice, len(invented), invented)
	}
}

// records are the messages in the broker by business key.
func (l *lab) records() map[string][]*kgo.Record {
	l.t.Helper()
	list, err := testkit.ReadKafkaTopic(context.Background(), l.kafka.ListenAddrs()[0], "orders")
	testkit.Must(l.t, err)
	byKey := map[string][]*kgo.Record{}
	for _, r := range list {
		id := ""
		for _, h := range r.Headers {
			if h.Key == "message_id" {
				id = string(h.Value)
			}
		}
		if id != "order:"+string(r.Key) {
			l.t.Errorf("key %q goes with message id %q", r.Key, id)
		}
		byKey[string(r.Key)] = append(byKey[string(r.Key)], r)
	}
	return byKey
}

// metric sums the series of a metric that have all the labels; 0 when the relay does not answer.
func (l *lab) metric(name string, labels ...string) float64 {
	l.t.Helper()
	m, err := relay.ReadMetrics(l.dir)
	if err != nil {
		return 0
	}
	return m.Sum(name, labels...)
}

// deferred is the counter of rows that the log showed and that were left to the sweep.
func (l *lab) deferred(cause string) int {
	return int(l.metric("deferred_total", fmt.Sprintf("cause=%q", cause)))
}

// missed is the counter of rows that the sweep published and that the log never showed as inserted.
func (l *lab) missed() int { return int(l.metric("missed_total", "")) }

func (l *lab) wantMissed(rows int) {
	l.t.Helper()
	if got := l.missed(); got != rows {
		l.t.Errorf("missed_total is %d, want %d", got, rows)
	}
}
