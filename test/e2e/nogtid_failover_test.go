package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// withoutGTIDs is a relay with a lease on a server without GTIDs that has a replica.
type withoutGTIDs struct {
	*lab
	primary, replica *testkit.Database
	proxy            *testkit.Proxy
	rows             []string // committed
}

func newWithoutGTIDs(t *testing.T) *withoutGTIDs {
	t.Helper()
	options := testkit.DatabaseOptions{Flavor: testkit.MySQL, Args: []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}}
	w := &withoutGTIDs{primary: testkit.NewDatabase(t, options), replica: testkit.NewDatabase(t, options)}
	testkit.Must(t, w.replica.ReplicateFrom(t.Context(), w.primary))
	w.lab = newLab(t, w.primary)
	w.leaseTable(w.primary)
	w.proxy = w.through()
	w.start()
	w.write("before", 20)
	w.account(w.rows...)
	return w
}

// leaseTable makes the lease table on a server.
func (l *lab) leaseTable(db *testkit.Database) {
	l.t.Helper()
	ddl, err := migrations.DDL("lease", l.schema+".canal_outbox_lease")
	testkit.Must(l.t, err)
	testkit.Exec(l.t, db.Root(), ddl)
}

func (w *withoutGTIDs) write(prefix string, n int) {
	w.t.Helper()
	list := keys(prefix, n)
	w.commit(list...)
	w.rows = append(w.rows, list...)
}

// catchUp waits until the replica has what the primary has.
func (w *withoutGTIDs) catchUp() {
	w.t.Helper()
	testkit.Must(w.t, w.replica.CatchUp(w.t.Context(), w.primary))
}

// cutOff disconnects the relay from every server; redirect lets its address lead to the replica, which is a primary from then on.
func (w *withoutGTIDs) cutOff() {
	w.t.Helper()
	testkit.Must(w.t, w.proxy.Refuse(true))
	w.proxy.Cut()
}

// other makes a server with empty tables of the same names the next one.
func (w *withoutGTIDs) other(options testkit.DatabaseOptions) {
	w.t.Helper()
	w.replica = testkit.NewDatabase(w.t, options)
	testkit.Exec(w.t, w.replica.Root(), "CREATE DATABASE "+w.schema)
	w.leaseTable(w.replica)
	ddl, err := migrations.DDL("outbox", w.schema+".t_local_message")
	testkit.Must(w.t, err)
	testkit.Exec(w.t, w.replica.Root(), ddl)
}

func (w *withoutGTIDs) redirect() {
	w.t.Helper()
	testkit.Must(w.t, w.replica.Promote(w.t.Context()))
	w.db, w.sql = w.replica, w.replica.Connect(w.t, w.schema)
	w.proxy.SetTarget(w.replica.Addr())
	testkit.Must(w.t, w.proxy.Refuse(false))
}

// failOver makes the replica the primary of the relay, and the old primary its replica.
func (w *withoutGTIDs) failOver() {
	w.t.Helper()
	w.cutOff()
	w.catchUp()
	testkit.Must(w.t, w.replica.Promote(w.t.Context()))
	testkit.Must(w.t, w.primary.Rejoin(w.t.Context(), w.replica))
	w.primary, w.replica = w.replica, w.primary
	w.db, w.sql = w.primary, w.primary.Connect(w.t, w.schema)
	w.proxy.SetTarget(w.primary.Addr())
	testkit.Must(w.t, w.proxy.Refuse(false))
}

// A11: the lease names the new server as soon as the relay has followed there, so that it is also followed back at once.
func TestA11_FailoverWithoutGTIDsAndBackAtOnce(t *testing.T) {
	t.Parallel()
	w := newWithoutGTIDs(t)
	for n := range 4 {
		w.failOver()
		w.wait("the relay to follow", func() bool { return len(w.gaps()) > n })
	}
	w.reading()
	w.write("after", 20)
	w.account(w.rows...)
	w.wantGaps("failover", "failover", "failover", "failover")
	w.stop()
}

// askAllTheTime lets clients ask for rows until end is called; while a failover is not followed each gets the error of a refused connection.
func (w *withoutGTIDs) askAllTheTime() (end func()) {
	ctx, stop := context.WithCancel(w.t.Context())
	client := w.admin()
	var asking sync.WaitGroup
	for range 3 {
		asking.Go(func() {
			for ctx.Err() == nil {
				_, _ = client.ListMessages(ctx, operator.MessageQuery{Table: w.schema + ".t_local_message"})
			}
		})
	}
	return func() {
		stop()
		asking.Wait()
	}
}

// A11: a copy that lacks the last SENT of the old server is followed, while clients ask for rows all the time, and the relay says how many rows are behind
// before it publishes them again.
func TestA11_FailoverWithoutGTIDsToACopyThatIsBehind(t *testing.T) {
	t.Parallel()
	w := newWithoutGTIDs(t)
	_, err := w.admin().Pause(t.Context(), outbox.Pause{Reason: "the test"})
	testkit.Must(t, err)
	w.write("behind", 20)
	w.catchUp()
	testkit.Must(t, w.replica.Promote(t.Context())) // it gets no SENT of these rows
	testkit.Must(t, w.admin().Resume(t.Context()))
	w.account(w.rows...)
	end := relay.LogEnd(t, w.primary.Root())
	w.wait("a checkpoint behind these rows", func() bool {
		st, err := w.admin().Status(t.Context())
		return err == nil && st.Positions.Checkpoint.Compare(end) >= 0
	})
	w.cutOff()
	answered := w.askAllTheTime()
	w.redirect()
	w.wait("the relay to follow", func() bool { return len(w.gaps()) > 0 })
	answered()
	w.reading()
	w.wait("the rows to be SENT again", func() bool { return w.number("SELECT COUNT(*) FROM t_local_message WHERE status <> 2") == 0 })
	line, err := w.admin().Timeline(t.Context(), operator.Span{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Minute), Step: operator.SampleStep})
	testkit.Must(t, err)
	want := fmt.Sprintf("20 rows of %s.t_local_message that are older than the last checkpoint are PENDING on the new server", w.schema)
	if !slices.ContainsFunc(line.Marks, func(m operator.Mark) bool { return strings.HasPrefix(m.Text, want) }) {
		t.Errorf("%q is not among %+v", want, line.Marks)
	}
	w.stop()
}

// A11: the lease got the name of the new server, and the relay did not get the answer.
func TestA11_FailoverWithoutGTIDsWhileTheLeaseWaits(t *testing.T) {
	t.Parallel()
	w := newWithoutGTIDs(t)
	w.cutOff()
	w.catchUp()
	testkit.Must(t, w.replica.Promote(t.Context()))
	lock := &lab{t: t, sql: w.replica.Connect(t, w.schema)}
	row := lock.session("BEGIN", "SELECT * FROM canal_outbox_lease FOR UPDATE")
	w.redirect()
	name := w.column("SELECT @@server_uuid")[0]
	w.wait("the relay to write into the lease", func() bool {
		return w.number("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE %canal_outbox_lease%"+name+"%'") > 0
	})
	w.cutOff()
	row.exec("ROLLBACK")
	w.wait("the lease to have the new server", func() bool {
		return w.number("SELECT COUNT(*) FROM canal_outbox_lease WHERE source LIKE '%"+name+"%'") > 0
	})
	testkit.Must(t, w.proxy.Refuse(false))
	w.wait("the relay to follow", func() bool { return len(w.gaps()) > 0 })
	w.reading()
	w.write("after", 20)
	w.account(w.rows...)
	w.wantGaps("failover")
	w.stop()
}

// A11: without GTIDs a promoted replica is known by the lease table, which came from the recorded server: the relay continues there with a
// gap, and the sweep publishes what the old server had committed and the relay had not.
func TestA11_FailoverWithoutGTIDs(t *testing.T) {
	t.Parallel()
	ways := map[string]func(w *withoutGTIDs){
		"while it runs": func(w *withoutGTIDs) {
			w.cutOff()
			w.write("during", 20)
			w.catchUp()
			w.redirect()
			w.wait("the relay to follow", func() bool { return len(w.gaps()) > 0 })
		},
		"while it is stopped": func(w *withoutGTIDs) {
			w.stop()
			w.write("during", 20)
			w.catchUp()
			w.redirect()
			w.start()
		},
	}
	for name, fail := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWithoutGTIDs(t)
			fail(w)
			w.reading()
			w.write("after", 20)
			w.account(w.rows...)
			w.wantGaps("failover")
			w.stop()
			w.start()
			w.write("restarted", 20)
			w.account(w.rows...)
			w.wantGaps("failover")
			w.stop()
		})
	}
}

// A copy of the database that is older than a replica can be, or of other data, is refused each time: the lease that the relay takes there
// proves nothing.
func TestA11_OldCopiesWithoutGTIDsAreRefused(t *testing.T) {
	t.Parallel()
	refused := map[string]func(w *withoutGTIDs){
		"a copy of an hour ago": func(w *withoutGTIDs) {
			w.catchUp()
			testkit.Must(w.t, w.replica.Promote(w.t.Context()))
			testkit.Exec(w.t, w.replica.Root(), "UPDATE "+w.schema+".canal_outbox_lease SET expires_at = expires_at - INTERVAL 1 HOUR WHERE epoch > 0")
			w.write("later", 20)
			w.account(w.rows...)
			w.stop()
			w.redirect()
		},
		"other data": func(w *withoutGTIDs) {
			w.stop()
			w.other(testkit.DatabaseOptions{Flavor: testkit.MySQL, Args: []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}})
			w.redirect()
		},
	}
	sameID := func(w *withoutGTIDs) testkit.DatabaseOptions {
		return testkit.DatabaseOptions{Flavor: testkit.MySQL, Args: []string{
			"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", fmt.Sprint("--server-id=", w.number("SELECT @@server_id")),
		}}
	}
	refused["other data on a server with the same server_id, while it runs"] = func(w *withoutGTIDs) {
		w.stop()
		w.exec("UPDATE canal_outbox_lease SET expires_at = UTC_TIMESTAMP(3) WHERE epoch > 0") // as a kill leaves it
		w.start()                                                                             // it has read its own row, of the recorded server
		w.other(sameID(w))
		w.redirect()
		w.proxy.Cut()
	}
	refused["an old copy on a server with the same server_id, while it runs"] = func(w *withoutGTIDs) {
		w.catchUp()
		row := w.column("SELECT CONCAT_WS(', ', epoch, QUOTE(holder), QUOTE(process), QUOTE(host), QUOTE(table_names), QUOTE(expires_at - INTERVAL 1 HOUR), " +
			"QUOTE(source), QUOTE(log_file), log_offset, QUOTE(gtid_set)) FROM canal_outbox_lease ORDER BY epoch")
		w.other(sameID(w))
		for _, values := range row {
			if strings.Count(values, ", ") >= 9 {
				testkit.Exec(w.t, w.replica.Root(), "INSERT INTO "+w.schema+".canal_outbox_lease (epoch, holder, process, host, table_names, expires_at, source, log_file, log_offset, gtid_set) VALUES ("+values+")")
			}
		}
		w.write("later", 20)
		w.account(w.rows...)
		w.redirect()
		w.proxy.Cut()
	}
	for name, prepare := range refused {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWithoutGTIDs(t)
			prepare(w)
			w.exec(insert("open"))
			if w.cancel != nil { // it runs
				w.wantRefusal()
			}
			for range 2 {
				w.launch(app.Options{})
				w.wantRefusal()
			}
			w.compare(w.rows...)
			if open := w.number("SELECT COUNT(*) FROM t_local_message WHERE biz_key = 'open' AND status = 0"); open != 1 {
				t.Error("a refused server was written to")
			}
		})
	}
}
