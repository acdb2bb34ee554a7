package adversary

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
	"github.com/canal-outbox/canal-outbox/test/soak"
)

const (
	patience = 2 * time.Minute // for the slowest recovery from a fault on a busy machine
	asking   = 5 * time.Second // for an answer of a relay that may be stopped
	between  = 25 * time.Millisecond
	writers  = 2
)

// Short times, so that much happens in a run. A row that was refused twice waits longer than a run: only an operator frees its
// key.
const settings = `lease: {time: 3s, table: %s.canal_outbox_lease}
retry: {max: 1000, schedule: [1s, 20m]}
fallback: {interval: 1s, threshold: 2s, claim_timeout: 10s}
`

// world has the servers, the two relays, and the record of changes.
type world struct {
	t       *testing.T
	seed    uint64
	db      *testkit.Database
	broker  relay.Broker
	fake    *fakekafka.Cluster // nil with a real broker
	server  *testkit.Server    // nil with the fake one
	tables  []*relay.Table
	loads   []*relay.Load
	topics  []string
	relays  []*relay.Relay
	proxies []*testkit.Proxy
	options []relay.Options
	lists   [][]*relay.Table // the tables of each relay's configuration

	writing sync.RWMutex // read-held by the application in a transaction
	active  map[string]*fault
	step    int
	altered int
	special int // numbers of rows that the steps write

	account
}

// fault is one that has begun and not ended.
type fault struct {
	until int // step
	fix   func()
}

// run is one seed.
func run(t *testing.T, seed uint64, db *testkit.Database) {
	w := newWorld(t, seed, db)
	stop := w.application()
	defer stop()
	wanted, unwanted := regexp.MustCompile(*only), regexp.MustCompile(cmp.Or(*skip, "^$"))
	for i, s := range Plan(seed, *steps, len(w.relays), len(w.tables)) {
		w.step = i
		w.heal(false)
		w.observe()
		if !wanted.MatchString(s.name) || unwanted.MatchString(s.name) {
			continue
		}
		w.watch()
		w.say("%s (relay %d, table %d, length %d)", s.name, s.Relay, s.Table, s.Length)
		s.do(w, s, rand.New(rand.NewPCG(s.Dice, 3)))
		<-time.After(time.Duration(s.Rest) * time.Millisecond)
		if t.Failed() {
			break
		}
	}
	w.step = *steps
	w.finish(stop)
	t.Logf("adversary: seed %d on %s: %d steps, %d rows, %d touched by operators, %d copies", seed, db.Flavor, *steps, w.committed(), len(w.touched), w.copies)
}

func newWorld(t *testing.T, seed uint64, db *testkit.Database) *world {
	t.Helper()
	w := &world{t: t, seed: seed, db: db, active: map[string]*fault{}, account: newAccount(), topics: []string{"orders", "payments", "points"}}
	partitions := map[string]int{}
	for _, topic := range w.topics {
		partitions[topic] = 3
	}
	w.broker, w.fake, w.server = soak.NewBroker(t, *broker, partitions)
	metadata := []string{"FULL", "MINIMAL"}[seed/2%2]
	testkit.Exec(t, db.Root(), "SET GLOBAL binlog_row_metadata = "+metadata)
	user := fmt.Sprintf("relay%d", seed)
	rights := []string{"REPLICATION SLAVE, REPLICATION CLIENT ON *.*"}
	for i := range 2 {
		schema := db.CreateSchema(t)
		pool := db.Connect(t, schema)
		pool.SetMaxIdleConns(8)
		table := relay.NewTable(t, pool, schema, "t_local_message")
		table.Extra = ", ordering: key"
		// A trigger that refuses every change of such a row: it can be published and never be shown as SENT.
		testkit.Exec(t, pool, "CREATE TRIGGER refuse BEFORE UPDATE ON t_local_message FOR EACH ROW BEGIN IF OLD.biz_type LIKE 'unwritable%' THEN "+
			"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'this row is not to be changed'; END IF; END")
		load := relay.NewLoad(t, table, true, [][]string{w.topics[:2], w.topics[2:]}[i]...)
		load.Strict, load.Name, load.Around = *strict, fmt.Sprintf("t%d", i), w.transaction
		w.tables, w.loads = append(w.tables, table), append(w.loads, load)
		testkit.Exec(t, pool, "CREATE TABLE t_local_message_failed LIKE t_local_message") // discarded rows move there
		testkit.Exec(t, pool, "ALTER TABLE t_local_message_failed ADD COLUMN moved_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)")
		rights = append(rights, "SELECT, INSERT, UPDATE, DELETE ON "+schema+".*")
	}
	w.tables[0].NewLease(t)
	testkit.Must(t, db.CreateUser(t.Context(), user, "secret", rights...))
	for i := range 2 {
		w.proxies = append(w.proxies, testkit.NewProxy(t, db.Addr()))
		w.options = append(w.options, relay.Options{
			Source: w.proxies[i].Addr(), User: "user: " + user + ", password: secret", Tables: w.tables, Sink: w.broker.Sink(),
			Extra: fmt.Sprintf(settings, w.tables[0].Schema),
		})
		w.relays, w.lists = append(w.relays, relay.New(t, w.options[i])), append(w.lists, w.tables)
		w.relays[i].Launch(t)
	}
	w.say("seed %d on %s and %s, binlog_row_metadata %s, %d steps", seed, db.Flavor, *broker, metadata, *steps)
	w.serving("at the beginning")
	return w
}

// say writes a line of the sequence of steps.
func (w *world) say(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("%s step %d: %s", time.Now().UTC().Format("15:04:05.000"), w.step, fmt.Sprintf(format, args...))
}

// application writes transactions until the function that it returns is called.
func (w *world) application() (stop func()) {
	var stops []func()
	for _, load := range w.loads {
		stops = append(stops, load.StartPaced(w.t, writers, between))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// transaction is what is around each transaction of the application.
func (w *world) transaction(write func() error) error {
	w.writing.RLock()
	defer w.writing.RUnlock()
	err := write()
	if victim(err) {
		return nil // it was rolled back: an operator's statements wait for its rows, as it does for theirs
	}
	if err != nil {
		w.t.Errorf("the application could not write: %v", err)
	}
	return err
}

// victim reports whether a statement failed because of another one, a deadlock or a lock wait time-out, or met a row that the table refuses.
func victim(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && (refused.Number == 1213 || refused.Number == 1205 || refused.Number == 1644)
}

// serves returns the relay that publishes a table and reads the log, -1 when there is none.
func (w *world) serves(table *relay.Table) int {
	for i, r := range w.relays {
		if !r.Running() || w.active[relayKey(i)] != nil {
			continue
		}
		s, err := r.Status()
		if err != nil || s.Lease.State != "active" || s.Source.State != "connected" {
			continue
		}
		for _, t := range w.lists[i] {
			if t == table {
				return i
			}
		}
	}
	return -1
}

// serving waits until every table has a relay, and resumes one that an operator has paused.
func (w *world) serving(when string) {
	w.t.Helper()
	testkit.WaitFor(w.t, patience, "a relay for each table, "+when, func() bool {
		w.watch()
		for _, r := range w.relays {
			if s, err := r.Status(); err == nil && s.Paused != nil && s.Lease.State == "active" {
				w.say("resume: %v", r.Client().Resume(w.t.Context()))
			}
		}
		return w.serves(w.tables[0]) >= 0 && w.serves(w.tables[1]) >= 0
	})
}

// watch fails the run when a relay has ended by itself.
func (w *world) watch() {
	for i, r := range w.relays {
		if !r.Running() && w.active[relayKey(i)] == nil {
			w.t.Fatalf("relay %d has ended by itself:\n%s", i, r.LogTail(30))
		}
	}
}

// writerName names a writer of a table: no message id is in two tables.
func writerName(table int, kind string, i int) string { return fmt.Sprintf("t%d%s%d", table, kind, i) }

func relayKey(i int) string   { return fmt.Sprint("relay ", i) }
func networkKey(i int) string { return fmt.Sprint("network ", i) }

// begin records a fault that ends length steps later; a second one of its key is left out.
func (w *world) begin(key string, length int, f func() (fix func())) {
	if w.active[key] != nil {
		w.say("left out: %s is broken already", key)
		return
	}
	w.disturb()
	w.active[key] = &fault{w.step + length, f()}
}

// heal ends faults whose time has come, or all.
func (w *world) heal(all bool) {
	for _, key := range keys(w.active) {
		if f := w.active[key]; all || f.until <= w.step {
			f.fix()
			delete(w.active, key)
			w.say("ended: %s", key)
		}
	}
}

// pool is the operator's connection to a table's schema.
func (w *world) pool(table int) *sql.DB { return w.tables[table].DB }

func (w *world) committed() (n int) {
	for _, load := range w.loads {
		n += load.Ledger.Len()
	}
	return n
}
