package soak

import (
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

const (
	patience = 3 * time.Minute // for the slowest recovery from a fault on a busy machine
	writers  = 3
	pause    = 15 * time.Millisecond // between two transactions of a writer

	// The maximum of the process' memory at a quiet point.
	memoryLimit    = 600e6
	goroutineLimit = 200
)

var topics = []string{"orders", "payments"}

// world is the relay between its servers.
type world struct {
	t      *testing.T
	db     *testkit.Database
	sql    *sql.DB
	proxy  *testkit.Proxy // of relay
	broker relay.Broker
	fake   *fakekafka.Cluster // nil with a real broker
	server *testkit.Server    // nil with the fake one
	table  *relay.Table
	load   *relay.Load
	relay  *relay.Relay // the active one, see choose

	relays  []*relay.Relay   // more than one: the others stand by
	proxies []*testkit.Proxy // each has its own connection to the database

	writing sync.RWMutex // read-held by the application in a transaction

	faults     int
	duplicates int
	copies     map[string]int    // of earlier periods, by message id
	known      []map[string]bool // message ids that may not be sent again, one set for each time that permits copies
	memory     float64
	goroutines float64
}

// leaseTime is shorter than most faults, so that another relay takes over.
const leaseTime = "lease: {time: 3s}"

func newWorld(t *testing.T, flavor testkit.Flavor, kind string, relays int) *world {
	t.Helper()
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
	schema := db.CreateSchema(t)
	w := &world{t: t, db: db, sql: db.Connect(t, schema), copies: map[string]int{}}
	w.sql.SetMaxIdleConns(8)
	w.broker, w.fake, w.server = NewBroker(t, kind, map[string]int{topics[0]: 4, topics[1]: 4})
	w.table = relay.NewTable(t, w.sql, schema, "t_local_message")
	w.load = relay.NewLoad(t, w.table, w.broker.TakesEmpty(), topics...)
	w.load.Loose = true // under faults a message may overtake another
	w.load.Around = func(write func() error) error {
		w.writing.RLock()
		defer w.writing.RUnlock()
		return write()
	}
	rights := []string{"REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT, UPDATE ON " + schema + ".*"}
	opts := relay.Options{User: "user: relay, password: secret", Tables: []*relay.Table{w.table}, Sink: w.broker.Sink()}
	if relays > 1 {
		w.table.NewLease(t)
		opts.Extra = leaseTime
		rights = append(rights, "INSERT, DELETE ON "+schema+".canal_outbox_lease")
	}
	testkit.Must(t, db.CreateUser(t.Context(), "relay", "secret", rights...))
	for i := range relays {
		w.proxies = append(w.proxies, testkit.NewProxy(t, db.Addr()))
		opts.Source = w.proxies[i].Addr()
		w.relays = append(w.relays, relay.New(t, opts))
	}
	return w
}

// choose starts the relays that do not run, and uses the active one from then on.
func (w *world) choose() {
	w.t.Helper()
	for _, r := range w.relays {
		if !r.Running() {
			r.Launch(w.t)
		}
	}
	testkit.WaitFor(w.t, patience, "a relay to be active and to read the log", func() bool {
		for i, r := range w.relays {
			if !r.Running() {
				w.t.Fatalf("a relay has ended by itself:\n%s", r.LogTail(30))
			}
			s, err := r.Status()
			if err == nil && s.Lease.State != "standby" && s.Lease.State != "lapsed" && s.Source.State == "connected" {
				w.relay, w.proxy = r, w.proxies[i]
				return true
			}
		}
		return false
	})
}

// kinds are the faults that are possible here.
func (w *world) kinds() []Kind {
	kinds := []Kind{
		KillRelay, RestartRelay, FreezeRelay, CutDatabase, HoleDatabase, SlowDatabase, RefuseDatabase, KillSessions, PurgeLogs,
		RestartServer, StopBroker, FreezeBroker, CheckpointBack,
	}
	if w.fake != nil {
		kinds = append(kinds, LoseReplies, RefuseMessages)
	}
	return kinds
}

// pass waits while the application writes.
func (w *world) pass(d time.Duration) { <-time.After(d) }

// excuse records that rows that are neither SENT nor in the journal may be sent again.
func (w *world) excuse(journal map[string]bool) {
	known := w.table.SentIDs(w.t)
	for id := range journal {
		known[id] = true
	}
	w.known = append(w.known, known)
}

func (w *world) kill() {
	w.relay.Kill()
	w.excuse(w.journal())
}

// journal returns the previous relay's journal; empty if another relay took over.
func (w *world) journal() map[string]bool {
	if len(w.relays) > 1 {
		return nil
	}
	return w.relay.State(w.t).Journal
}

// stopInTime ends the relay with SIGTERM. Rows that it did not wait for may be sent again.
func (w *world) stopInTime() {
	w.relay.Stop(w.t)
	w.excuse(w.journal())
}

// quiet pauses the application, waits until everything is SENT, and checks the promises.
func (w *world) quiet(when string) {
	w.t.Helper()
	w.writing.Lock()
	defer w.writing.Unlock()
	w.choose()
	began := time.Now()
	testkit.WaitFor(w.t, patience, when+": every row to be SENT", func() bool { return w.table.Count(w.t, "status <> 2") == 0 })
	var records []relay.Record
	want := w.load.Ledger.Len()
	testkit.WaitFor(w.t, patience, when+": the broker to show the messages", func() bool {
		records = relay.ReadAll(w.t, w.broker, topics...)
		return len(records) >= want
	})
	account := w.load.Ledger.Compare(records)
	account.Check(w.t)
	w.explain(account)
	if n := w.table.Count(w.t, "retry_count <> 0 OR fail_reason IS NOT NULL"); n > 0 {
		w.t.Errorf("%s: %d rows lost a try", when, n)
	}
	if n := w.table.Count(w.t, "TRUE"); n != want {
		w.t.Errorf("%s: %d rows in the table, %d were committed", when, n, want)
	}
	w.process(when)
	w.t.Logf("soak: %s: %d rows SENT %v after the last, %d messages more than once so far", when, want,
		time.Since(began).Round(time.Millisecond), account.Duplicates())
}

// explain looks for copies that no fault of this period permits.
func (w *world) explain(account relay.Account) {
	for id, n := range account.Copies {
		if n == w.copies[id] {
			continue
		}
		excused := false
		for _, known := range w.known {
			excused = excused || !known[id]
		}
		if !excused {
			w.t.Errorf("%s came %d times more, though it was SENT or in the journal at each time that permits copies", id, n-w.copies[id])
		}
	}
	w.copies, w.duplicates, w.known = account.Copies, account.Duplicates(), nil
}

// process checks that the relay has not grown and that its own accounting is consistent.
func (w *world) process(when string) {
	m := w.relay.Metrics(w.t).Sums()
	w.memory, w.goroutines = max(w.memory, m["process_resident_memory_bytes"]), max(w.goroutines, m["go_goroutines"])
	if m["process_resident_memory_bytes"] > memoryLimit || m["go_goroutines"] > goroutineLimit || m["internal_errors_total"] > 0 {
		w.t.Errorf("%s: %.0f bytes of memory, %.0f goroutines, %.0f internal errors", when, m["process_resident_memory_bytes"],
			m["go_goroutines"], m["internal_errors_total"])
	}
}
