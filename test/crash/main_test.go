// Package crash stops the running relay at every relevant point and checks the result (P1 to P5): nothing is lost, nothing
// invented, keys keep their order, and only messages that the broker had accepted, and that neither the journal nor the table had
// when the process was killed, are sent twice.
//
// It does so on the table that has every column, and on tables that have less, as their owners made them (layouts B, C and D).
//
// `go test ./test/crash` takes samples; -long stops it at every event of the log, and also takes the newer MariaDB and each
// layout on each server.
package crash

import (
	"database/sql"
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

var long = flag.Bool("long", false, "break the relay at every event, not at samples, on each layout and on MariaDB 11.8 too")

func TestMain(m *testing.M) { relay.Main(m) }

// patience is for a machine that is busy with other work. Every wait is for a condition and normally takes far less.
const patience = 3 * time.Minute

// topics are used one after the other, see renew.
const topics = 20

func topic(n int) string { return fmt.Sprintf("orders-%d", n%topics) }

// newBroker starts a broker in this process: these tests are about the relay's state, not the broker's.
func newBroker(t *testing.T) relay.Broker {
	t.Helper()
	var names []string
	for n := range topics {
		names = append(names, topic(n), layouts.EventTopic+topic(n))
	}
	return fakekafka.New(t, 1, nil, kfake.SeedTopics(4, names...))
}

// bed is one relay with its table, broker and connection to the database.
type bed struct {
	db     *testkit.Database
	sql    *sql.DB
	proxy  *testkit.Proxy // between relay and database
	broker relay.Broker
	table  *relay.Table
	load   *relay.Load
	writer *relay.Writer
	relay  *relay.Relay

	copies     int  // duplicates of earlier accounts
	ordered    bool // the table has ordering: key: its order is that of the commits whatever happens
	disordered bool // see lateRows: the order of this account is not that of the commits
	unanswered bool // the broker left a message without an answer
	seen       int  // number of stops in the relay's log
	cuts       int  // breaks that came before all was sent
}

// newBed returns a bed with the table of a layout, or, without one, with the table that has every column.
func newBed(t *testing.T, flavor testkit.Flavor, layout *layouts.Layout, extra string) *bed {
	t.Helper()
	db := testkit.SharedDatabase(t, flavor)
	if db.Flavor == testkit.MariaDB { // compressed row events, which are a setting of the whole server
		testkit.Exec(t, db.Root(), "SET GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 64")
	}
	schema := db.CreateSchema(t)
	b := &bed{
		db: db, sql: db.Connect(t, schema), proxy: testkit.NewProxy(t, db.Addr()), broker: newBroker(t),
	}
	b.table = relay.NewLayout(t, b.sql, schema, layout)
	b.load = relay.NewLoad(t, b.table, true, topic(0))
	b.writer = b.load.Writer("app")
	b.relay = relay.New(t, relay.Options{
		// Unencrypted, so that a cut may be between any two bytes of the protocol.
		Source: b.proxy.Addr(), User: "user: root, tls: {mode: disabled}", Tables: []*relay.Table{b.table}, Sink: b.broker.Sink(),
		Extra: extra,
	})
	return b
}

// sampled are the layouts that have less, and where they are tried without -long. With -short no test takes them.
var sampled = map[string]testkit.Flavor{"B": testkit.MySQL, "C": testkit.MariaDB, "D": testkit.MySQL}

// beds runs a test on MySQL and on MariaDB at the same time, and on the layouts; with -long on both generations of MariaDB, and on each
// layout there. extra is more of the relay's configuration.
func beds(t *testing.T, f func(t *testing.T, b *bed), extra ...string) {
	flavors := testkit.Flavors()
	if *long {
		flavors = append(flavors, testkit.MariaDB118)
	}
	run := func(name string, flavor testkit.Flavor, layout *layouts.Layout) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newBed(t, flavor, layout, strings.Join(extra, "\n")))
		})
	}
	for _, flavor := range flavors {
		run(string(flavor), flavor, nil)
		for _, layout := range layouts.All() {
			if only, ok := sampled[layout.Name]; ok && (*long || only == flavor) && !testing.Short() {
				run(string(flavor)+"_"+layout.Name, flavor, layout)
			}
		}
	}
}

// sent waits until every committed row is SENT.
func (b *bed) sent(t *testing.T) {
	t.Helper()
	testkit.WaitFor(t, patience, "all rows to be SENT", func() bool { return b.allSent(t) })
}

func (b *bed) allSent(t *testing.T) bool {
	t.Helper()
	return b.table.Count(t, b.table.Sent()) == b.load.Ledger.Len()
}

// account waits until all is sent and checks everything except duplicates, which it returns: those of all accounts.
func (b *bed) account(t *testing.T) relay.Account {
	t.Helper()
	b.sent(t)
	account := b.load.Ledger.Compare(relay.ReadAll(t, b.broker, b.load.Topics...))
	if n := b.lateRows(t); n > 0 {
		t.Logf("%d rows were not yet in the table, or the broker did not take them: their order is not checked", n)
		b.disordered = true
	}
	if b.disordered && !b.ordered {
		account.Disorder = nil
	}
	account.Check(t)
	return account
}

// lateRows is the number of rows that the running process published in no order of commits, as it may (P5). The sweep publishes those that the
// process found in the log, looked up after a reconnect, and did not see in the table: a server shows a commit in its log before it shows it to a
// SELECT, on a busy machine for milliseconds. And rows go out again, or are left to the sweep, that the broker did not take, or did not answer.
func (b *bed) lateRows(t *testing.T) int {
	t.Helper()
	if !b.relay.Running() {
		return 0
	}
	return b.late(b.relay.Metrics(t))
}

// late is lateRows by the metrics of a process. It notes whether the broker left a message without an answer: then it may have a copy.
func (b *bed) late(m relay.Metrics) (n int) {
	failed := 0
	for class := outbox.ClassPermanent; class <= outbox.ClassUnknown; class++ {
		failed += int(m.Sum("messages_total", fmt.Sprintf("outcome=%q", class)))
	}
	b.unanswered = b.unanswered || m.Sum("messages_total", fmt.Sprintf("outcome=%q", outbox.ClassUnknown)) > 0
	return failed + notSeen(m)
}

// notSeen is the number of rows that a process did not see in the table yet.
func notSeen(m relay.Metrics) int {
	return int(m.Sum("deferred_total", fmt.Sprintf("cause=%q", outbox.CauseNotFound)))
}

// lateBeforeKill is lateRows of a process that is killed next, because no other process counts them. One that does not answer has not begun to look rows up.
func (b *bed) lateBeforeKill(t *testing.T) {
	t.Helper()
	if m, err := relay.ReadMetrics(b.relay.StateDir()); err == nil && b.late(m) > 0 {
		t.Log("rows were not yet in the table, or the broker did not take them: their order is not checked")
		b.disordered = true
	}
}

// renew starts a new account, so that the accounts of long runs stay small: an empty table, whose ids start again (A28), and
// another topic. All rows must be sent.
func (b *bed) renew(t *testing.T, n int) {
	t.Helper()
	testkit.Exec(t, b.sql, "TRUNCATE TABLE "+b.table.Name())
	b.load.Ledger, b.load.Topics, b.copies, b.disordered = relay.NewLedger(), []string{topic(n)}, 0, false
}

// noCopies checks that nothing was sent twice since the last account.
func (b *bed) noCopies(t *testing.T, account relay.Account) {
	t.Helper()
	if n := account.Duplicates() - b.copies; n != 0 {
		t.Errorf("%d messages were sent twice without a reason: %v", n, account.Copies)
	}
	b.copies = account.Duplicates()
}

var sweptRows = regexp.MustCompile(`sweep handed rows to the sink.*"not_tried_before": (\d+)`)

// afterKill starts the relay again and returns the account. The log delivers everything except the one row of the script that is
// left to the sweep: a checkpoint that ran ahead would show as more (A01, A03).
func (b *bed) afterKill(t *testing.T) relay.Account {
	t.Helper()
	log := len(b.relay.Log(t))
	b.relay.Start(t)
	account := b.account(t)
	rows := 0
	for _, match := range sweptRows.FindAllStringSubmatch(b.relay.Log(t)[log:], -1) {
		n, err := strconv.Atoi(match[1])
		testkit.Must(t, err)
		rows += n
	}
	if rows > 1+notSeen(b.relay.Metrics(t)) {
		t.Errorf("the sweep had to publish %d rows that the log should have delivered", rows)
	}
	return account
}

// kill ends the relay with SIGKILL and returns the message ids that its journal or the table had at that time.
func (b *bed) kill(t *testing.T) (known map[string]bool) {
	t.Helper()
	b.relay.Kill()
	known = b.table.SentIDs(t)
	for id := range b.relay.State(t).Journal {
		known[id] = true
	}
	return known
}

// onlyUnknown checks that the copies since the last account are of messages that were unknown at the kill, one each.
func (b *bed) onlyUnknown(t *testing.T, before, account relay.Account, known map[string]bool) {
	t.Helper()
	for id, n := range account.Copies {
		n -= before.Copies[id]
		if n > 0 && known[id] || n > 1 {
			t.Errorf("%s was sent %d more times, known when the process was killed: %v", id, n, known[id])
		}
	}
	b.copies = account.Duplicates()
}

// terminating waits until the relay has logged a SIGTERM.
func (b *bed) terminating(t *testing.T) {
	t.Helper()
	testkit.WaitFor(t, patience, "the relay to begin to stop", func() bool {
		return strings.Count(b.relay.Log(t), "stopping: ") > b.seen
	})
}

// terminated waits for the end of a relay that got SIGTERM.
func (b *bed) terminated(t *testing.T) {
	t.Helper()
	if code := b.relay.Wait(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM:\n%s", code, b.relay.LogTail(20))
	}
	b.seen = strings.Count(b.relay.Log(t), "stopping: ")
}

// stop sends SIGTERM and waits for the end.
func (b *bed) stop(t *testing.T) {
	t.Helper()
	b.relay.Terminate(t)
	b.terminated(t)
}
