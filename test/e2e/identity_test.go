package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	core "github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// through puts a proxy between the relay and its database.
func (l *lab) through() *testkit.Proxy {
	l.t.Helper()
	p := testkit.NewProxy(l.t, l.db.Addr())
	l.source = p.Addr()
	return p
}

// twin makes schema and tables of the lab on another server, for one that is behind the same address later.
func (l *lab) twin(db *testkit.Database) {
	l.t.Helper()
	testkit.Exec(l.t, db.Root(), "CREATE DATABASE "+l.schema)
	l.db, l.sql = db, db.Connect(l.t, l.schema)
	tables := l.tables
	l.tables = nil
	for _, name := range tables {
		l.table(name)
	}
}

// tampered describes everything that a relay could have changed on the present server.
func (l *lab) tampered() (state string) {
	l.t.Helper()
	testkit.Must(l.t, l.sql.QueryRow("SELECT CONCAT_WS(' ', COUNT(*), SUM(status), SUM(retry_count), COUNT(last_exec_time), MAX(updated_at)) "+
		"FROM t_local_message").Scan(&state))
	logs, err := l.db.BinaryLogs(context.Background())
	testkit.Must(l.t, err)
	return fmt.Sprint(state, logs)
}

func (l *lab) wantRefusal() {
	l.t.Helper()
	var refused *core.RefusedError
	if err := l.end(); !errors.As(err, &refused) {
		l.t.Fatalf("the relay ended with %v, want a refusal", err)
	}
}

// wantUntouched wants a refusal that neither published more than before nor wrote to the server, which was tampered before.
func (l *lab) wantUntouched(tampered string, before ...string) {
	l.t.Helper()
	l.wantRefusal()
	l.compare(before...)
	if now := l.tampered(); now != tampered {
		l.t.Errorf("a refused server was written to: %s, then %s", tampered, now)
	}
}

// A09, A11, C11: another server is behind the same address. Nothing is read from it, published or written; with the
// operator's consent it is taken over as a gap; TestA09_OperatorMeetsAnotherServer moves the checkpoint in its place.
func TestA09_A11_C11_AnotherServerBehindTheAddress(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		proxy := l.through()
		l.start()
		before := keys("before", 20)
		l.commit(before...)
		l.account(before...)
		l.stop()
		state := relay.ReadState(t, l.dir)
		l.twin(testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}))
		sent, open := keys("sent", 500), keys("open", 50)
		l.exec(insert(sent...))
		l.exec("UPDATE t_local_message SET status = 2")
		l.exec(insert(open...))
		proxy.SetTarget(l.db.Addr())
		untouched := l.tampered()
		l.launch(app.Options{})
		l.wantUntouched(untouched, before...)
		if now := relay.ReadState(t, l.dir); now.Checkpoint != state.Checkpoint || len(now.Gaps) != len(state.Gaps) {
			t.Errorf("a refusal changed the state: %+v, then %+v", state, now)
		}
		l.launch(app.Options{AcceptNewSource: true})
		l.reading()
		l.commit("after")
		l.account(append(append(before, open...), "after")...)
		l.wantGaps("operator")
	})
}

// A09: the address changes while the relay runs.
func TestA09_AnotherServerWhileRunning(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor), frequentSweeps)
		proxy := l.through()
		l.start()
		l.commit("before")
		l.account("before")
		l.twin(testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}))
		l.exec(insert(keys("open", 50)...))
		untouched := l.tampered()
		proxy.SetTarget(l.db.Addr())
		proxy.Cut()
		l.wantUntouched(untouched, "before")
	})
}

// A11: without GTIDs nothing proves that another server has the same history, though its files have the same names.
func TestA11_FailoverWithoutGTIDsIsRefused(t *testing.T) {
	t.Parallel()
	options := testkit.DatabaseOptions{Flavor: testkit.MySQL, Args: []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}}
	l := newLab(t, testkit.NewDatabase(t, options))
	proxy := l.through()
	l.start()
	before := keys("before", 20)
	l.commit(before...)
	l.sent()
	l.stop()
	l.start() // by file and position
	l.commit("restarted")
	before = append(before, "restarted")
	l.account(before...)
	l.stop()
	l.twin(testkit.NewDatabase(t, options))
	l.exec(insert("open"))
	untouched := l.tampered()
	proxy.SetTarget(l.db.Addr())
	l.launch(app.Options{})
	l.wantUntouched(untouched, before...)
}

// A12: failover to a replica with the same history. The relay continues by GTID, loses and repeats nothing, and does not touch
// the session on the new server that has the id of the relay's own old session.
func TestA12_Failover(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		ctx := context.Background()
		a := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		b := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		testkit.Must(t, b.ReplicateFrom(ctx, a))
		l := newLab(t, a)
		proxy := l.through()
		for range 100 { // so that ids of new sessions here are higher than there
			testkit.Must(t, a.Root().Ping())
		}
		l.start()
		before := keys("before", 200)
		l.commit(before...)
		l.sent()
		var old int64
		testkit.Must(t, l.sql.QueryRow("SELECT MAX(ID) FROM "+a.Processlist()+" WHERE COMMAND LIKE 'Binlog Dump%' AND ID <> "+
			"(SELECT MIN(ID) FROM "+a.Processlist()+" WHERE COMMAND LIKE 'Binlog Dump%')").Scan(&old))
		testkit.Must(t, b.CatchUp(ctx, a))
		stranger := sessionWithID(t, b, l.schema, old)
		stranger.exec("BEGIN", insert("stranger"))

		testkit.Must(t, b.Promote(ctx))
		l.db, l.sql = b, b.Connect(t, l.schema)
		proxy.SetTarget(b.Addr())
		proxy.Cut()
		during := keys("during", 50)
		l.commit(during...)
		l.reading()
		l.commit("after")
		stranger.exec("COMMIT") // it lives
		l.account(append(append(before, during...), "after", "stranger")...)
		l.wantGaps()
		l.stop()
		l.start()
		l.account(append(append(before, during...), "after", "stranger")...)
	})
}

// sessionWithID opens sessions until one has the id.
func sessionWithID(t *testing.T, db *testkit.Database, schema string, id int64) *session {
	t.Helper()
	pool := db.Connect(t, schema)
	for {
		conn, err := pool.Conn(context.Background())
		testkit.Must(t, err)
		s := &session{t: t, conn: conn}
		var got int64
		testkit.Must(t, conn.QueryRowContext(context.Background(), "SELECT CONNECTION_ID()").Scan(&got))
		switch {
		case got == id:
			t.Cleanup(s.close)
			return s
		case got > id:
			t.Fatalf("the session would need the id %d, the server is at %d already", id, got)
		}
		s.close()
	}
}

// A36: what the old primary acknowledged and never replicated is not on the new one. The server that lacks transactions of
// the checkpoint is another history: refused, not followed in silence.
func TestA36_FailoverToAServerThatLacksTransactions(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		ctx := context.Background()
		a := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		b := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		testkit.Must(t, b.ReplicateFrom(ctx, a))
		l := newLab(t, a)
		proxy := l.through()
		l.start()
		l.commit("before")
		l.account("before")
		testkit.Must(t, b.CatchUp(ctx, a))
		testkit.Must(t, b.Promote(ctx))
		l.commit("phantom")
		l.account("before", "phantom")
		l.stop()
		l.db, l.sql = b, b.Connect(t, l.schema)
		proxy.SetTarget(b.Addr())
		l.commit("new")
		l.launch(app.Options{})
		l.wantRefusal()
		l.launch(app.Options{AcceptNewSource: true})
		l.reading()
		l.account("before", "phantom", "new")
		l.wantGaps("operator")
	})
}

// A41: a promoted MariaDB replica that wrote no log of what it applied cannot show the checkpoint's transactions. It is
// refused, and taken over from its own log's position when the operator says so.
func TestA41_PromotedReplicaWithoutLogOfUpdates(t *testing.T) {
	relay.Long(t)
	t.Parallel()
	ctx := context.Background()
	a := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB})
	b := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB, Args: []string{"--log-slave-updates=OFF"}})
	testkit.Must(t, b.ReplicateFrom(ctx, a))
	l := newLab(t, a)
	proxy := l.through()
	l.start()
	before := keys("before", 20)
	l.commit(before...)
	l.account(before...)
	l.stop()
	l.replicated(b)
	testkit.Must(t, b.Promote(ctx))
	l.db, l.sql = b, b.Connect(t, l.schema)
	proxy.SetTarget(b.Addr())
	l.commit("open")
	l.launch(app.Options{})
	l.wantRefusal()
	l.compare(before...)
	l.launch(app.Options{AcceptNewSource: true})
	l.reading()
	l.commit("after")
	l.account(append(before, "open", "after")...)
	l.stop()
	l.start()
	l.account(append(before, "open", "after")...)
}

// replicated waits until a replica shows every row as sent; it may write no log, so positions say nothing.
func (l *lab) replicated(replica *testkit.Database) {
	l.t.Helper()
	db := replica.Connect(l.t, l.schema)
	l.wait("the replica", func() bool {
		var sent, want int
		if db.QueryRow("SELECT COUNT(*) FROM t_local_message WHERE status = 2").Scan(&sent) != nil {
			return false
		}
		testkit.Must(l.t, l.sql.QueryRow("SELECT COUNT(*) FROM t_local_message WHERE status = 2").Scan(&want))
		return sent == want
	})
}
