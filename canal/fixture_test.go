package canal

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// recorder is a Handler that records its calls. Like the app it keeps the recorded source and anchors after gaps.
type recorder struct {
	source func(context.Context) (server.Info, outbox.Position, error)

	mu         sync.Mutex
	txns       []*outbox.Txn
	messages   []*outbox.Message
	deferred   []outbox.Deferred
	gaps       []outbox.Gap
	connects   []connect
	idle       outbox.Position
	recorded   server.ID
	checkpoint outbox.Position
	offer      func(*outbox.Txn) error // called first, when set
}

type connect struct {
	from, end outbox.Position
	failover  bool
}

func (r *recorder) Connected(_ context.Context, from, end outbox.Position, id server.ID, failover bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connects = append(r.connects, connect{from, end, failover})
	r.recorded = id
	return nil
}

func (r *recorder) Offer(_ context.Context, txn *outbox.Txn) error {
	if r.offer != nil {
		if err := r.offer(txn); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.txns = append(r.txns, txn)
	r.messages = append(r.messages, txn.Messages...)
	r.deferred = append(r.deferred, txn.Deferred...)
	return nil
}

func (r *recorder) Idle(pos outbox.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = pos
}

func (r *recorder) Gap(ctx context.Context, gap outbox.Gap) (outbox.Position, error) {
	info, end, err := r.source(ctx)
	if err != nil {
		return outbox.Position{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = append(r.gaps, gap)
	r.recorded, r.checkpoint = info.ID, end
	return end, nil
}

func (r *recorder) Disconnected(error) {}

func (r *recorder) record() (server.ID, outbox.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recorded, r.checkpoint
}

// ids lists the published rows in order, as id/key.
func (r *recorder) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, m := range r.messages {
		out = append(out, m.ID)
	}
	return out
}

// seen returns a copy of what the reader has offered.
func (r *recorder) seen() (messages []*outbox.Message, deferred []outbox.Deferred, connects []connect, gaps []outbox.Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.messages), slices.Clone(r.deferred), slices.Clone(r.connects), slices.Clone(r.gaps)
}

func (r *recorder) sent() []*outbox.Message {
	messages, _, _, _ := r.seen()
	return messages
}

func (r *recorder) left() []outbox.Deferred {
	_, deferred, _, _ := r.seen()
	return deferred
}

func (r *recorder) streams() []connect {
	_, _, connects, _ := r.seen()
	return connects
}

func (r *recorder) holes() []outbox.Gap {
	_, _, _, gaps := r.seen()
	return gaps
}

func (r *recorder) keys() []string {
	var keys []string
	for _, m := range r.sent() {
		keys = append(keys, m.Key)
	}
	return keys
}

func (r *recorder) causes() map[outbox.Cause]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[outbox.Cause]int{}
	for _, l := range r.deferred {
		out[l.Cause] += l.Rows
	}
	return out
}

// lab is a server with an outbox table and a reader on it.
type lab struct {
	t      *testing.T
	db     *testkit.Database
	sql    *sql.DB
	schema string
	table  *table.Table
	rec    *recorder
	cfg    Config
	reg    *prometheus.Registry
	log    *zap.Logger
	reader *Reader
	stop   func()

	reading func(*client.Conn) packets // of the reader; nil: our own, and an event is overwritten when the next one is read
}

const outboxDDL = `CREATE TABLE t_local_message (
	id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
	biz_type VARCHAR(64) NOT NULL, biz_key VARCHAR(64) NOT NULL, topic VARCHAR(128) NOT NULL,
	message_body LONGTEXT NOT NULL, status TINYINT NOT NULL DEFAULT 0, retry_count INT NOT NULL DEFAULT 0,
	next_retry_time DATETIME(3) NULL, last_exec_time DATETIME(3) NULL, fail_reason VARCHAR(512) NULL,
	created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
	UNIQUE KEY uk_biz (biz_type, biz_key), KEY idx_status (status, next_retry_time))`

// newLab creates a schema with the table on a running server.
func newLab(t *testing.T, db *testkit.Database) *lab {
	t.Helper()
	testkit.CheckLeaks(t)
	return makeLab(t, db)
}

// makeLab is newLab for a test that restarts the server and checks for leaks itself.
func makeLab(t *testing.T, db *testkit.Database) *lab {
	t.Helper()
	l := &lab{t: t, db: db, schema: db.CreateSchema(t), log: zaptest.NewLogger(t, zaptest.Level(zap.InfoLevel))}
	l.sql = db.Connect(t, l.schema)
	l.exec(outboxDDL)
	l.load()
	return l
}

func (l *lab) load(change ...func(*table.Mapping)) {
	l.t.Helper()
	m, err := table.Preset("t_local_message")
	testkit.Must(l.t, err)
	m.Schema, m.Name = l.schema, "t_local_message"
	for _, f := range change {
		f(&m)
	}
	tbl, findings, err := table.Load(context.Background(), l.sql, m)
	testkit.Must(l.t, err)
	if tbl == nil {
		l.t.Fatalf("the table does not fit: %v", findings)
	}
	l.table = tbl
}

func (l *lab) exec(query string, args ...any) {
	l.t.Helper()
	testkit.Exec(l.t, l.sql, query, args...)
}

// insert commits one row with that key and returns when it is done.
func (l *lab) insert(key string) {
	l.t.Helper()
	l.exec(insertRow, key, "body of "+key)
}

const insertRow = "INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', ?, 'orders', ?)"

// end returns the server's current position.
func (l *lab) end() outbox.Position {
	l.t.Helper()
	_, end, err := lookAt(l.sql)(context.Background())
	testkit.Must(l.t, err)
	return end
}

func lookAt(db *sql.DB) func(context.Context) (server.Info, outbox.Position, error) {
	return func(ctx context.Context) (server.Info, outbox.Position, error) {
		info, err := server.Inspect(ctx, db)
		if err != nil {
			return info, outbox.Position{}, err
		}
		end, err := info.End(ctx, db)
		return info, end, err
	}
}

// start runs a reader from that position and waits until it reads. stop or the end of the test stops it.
func (l *lab) start(from outbox.Position, change ...func(*Config)) {
	l.t.Helper()
	l.launch(from, change...)
	l.wait("a stream", func() bool { return l.reader.State().Connected })
}

// launch is start without the wait.
func (l *lab) launch(from outbox.Position, change ...func(*Config)) {
	l.t.Helper()
	if l.rec == nil {
		l.rec = &recorder{source: lookAt(l.sql)}
	}
	l.cfg = Config{
		Server: server.Config{Address: l.db.Addr(), User: "root"}, Tables: []*table.Table{l.table},
		Heartbeat: 200 * time.Millisecond, Recorded: l.rec.record, MinBackoff: 10 * time.Millisecond, MaxBackoff: 200 * time.Millisecond,
	}
	for _, f := range change {
		f(&l.cfg)
	}
	l.reg = prometheus.NewRegistry()
	l.reader = New(l.cfg, l.rec, l.log, l.reg)
	if l.reader.reading = l.reading; l.reading == nil {
		l.reader.reading = func(conn *client.Conn) packets { return &destroying{packets: conn} }
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.reader.Run(ctx, from) }()
	var once sync.Once
	l.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					l.t.Errorf("Run: %v", err)
				}
			case <-time.After(3 * time.Minute):
				l.t.Error("Run did not return after its context's end (A55)")
			}
		})
	}
	l.t.Cleanup(l.stop)
}

func (l *lab) wait(what string, condition func() bool) {
	l.t.Helper()
	testkit.WaitFor(l.t, 20*time.Second, what, condition)
}

// published waits for n messages and returns their keys in order.
func (l *lab) published(n int) []string {
	l.t.Helper()
	l.wait(fmt.Sprintf("%d messages", n), func() bool { return len(l.rec.ids()) >= n })
	return l.rec.keys()
}

// caughtUp waits until everything committed was offered.
func (l *lab) caughtUp() {
	l.t.Helper()
	end := l.end()
	l.wait("the reader to reach "+end.String(), func() bool {
		l.rec.mu.Lock()
		defer l.rec.mu.Unlock()
		return l.rec.idle.Compare(end) >= 0
	})
}

func onBoth(t *testing.T, test func(*testing.T, testkit.Flavor)) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) { test(t, flavor) })
	}
}

func joined(keys []string) string { return strings.Join(keys, ",") }

// metric sums a metric family.
func metric(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	testkit.Must(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return sum
	}
	t.Fatalf("no metric %s", name)
	return 0
}
