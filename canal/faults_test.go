package canal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

func through(p *testkit.Proxy) func(*Config) {
	return func(c *Config) { c.Server.Address = p.Addr() }
}

// A02, A04, A46: a transaction of many row events, cut at many places, is offered whole and once.
func TestA02_A04_A46_CutInsideATransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		proxy := testkit.NewProxy(t, l.db.Addr())
		l.start(l.end(), through(proxy))
		l.insert("before")
		l.published(1)
		var want []string
		for round := range 12 {
			streams := l.streams()
			cut := proxy.CutAfter(int64(3000 + round*2711))
			tx, err := l.sql.Begin()
			testkit.Must(t, err)
			for i := range 30 {
				key := fmt.Sprintf("r%d-%d", round, i)
				want = append(want, key)
				_, err := tx.Exec(insertRow, key, strings.Repeat("x", 1000))
				testkit.Must(t, err)
			}
			testkit.Must(t, tx.Commit())
			l.wait("the cut", func() bool {
				select {
				case <-cut:
					return true
				default:
					return false
				}
			})
			l.wait("a new stream", func() bool { return l.streams() > streams })
		}
		if got := l.fence(); joined(got) != "before,"+joined(want) {
			t.Fatalf("%d rows of %d, or in another order", len(got), len(want)+1)
		}
		l.rec.mu.Lock()
		defer l.rec.mu.Unlock()
		for i := 1; i < len(l.rec.txns); i++ {
			if l.rec.txns[i-1].End.Compare(l.rec.txns[i].End) >= 0 {
				t.Fatalf("positions go from %s to %s", l.rec.txns[i-1].End, l.rec.txns[i].End)
			}
		}
	})
}

func (l *lab) streams() int {
	return len(l.rec.streams())
}

// A05: the server is away for a while. The state shows it, the log has one line per change, and the reader recovers by itself.
// A12: no connection is killed.
func TestA05_A12_ServerAway(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		testkit.CheckLeaks(t)
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		l := makeLab(t, db)
		core, lines := observer.New(zap.InfoLevel)
		l.log = zap.New(core)
		l.start(l.end())
		l.insert("a")
		l.published(1)
		testkit.Must(t, db.Stop())
		l.wait("the state to show it", func() bool { return !l.reader.State().Connected && l.reader.State().Lag > 0 })
		attempts := func() float64 { return metric(t, l.reg, "canal_outbox_reconnects_total") }
		seen := attempts()
		l.wait("some more attempts", func() bool { return attempts() > seen+3 })
		testkit.Must(t, db.Start(context.Background()))
		l.insert("b")
		if got := joined(l.published(2)); got != "a,b" {
			t.Fatalf("published %s", got)
		}
		l.caughtUp()
		l.noLag()
		if warnings := lines.FilterLevelExact(zapcore.WarnLevel).Len(); warnings != 1 {
			t.Errorf("%d warnings for one outage: %v", warnings, lines.All())
		}
		if n := lines.FilterMessage("reading the binlog").Len(); n != 2 {
			t.Errorf("%d lines for two streams", n)
		}
		var name string
		var kills int
		testkit.Must(t, l.sql.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_kill'").Scan(&name, &kills))
		if kills != 0 {
			t.Errorf("%d KILL statements", kills)
		}
	})
}

// A07: the log was purged while no reader was connected.
func TestA07_Purged(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		for _, byFile := range []bool{false, true} {
			t.Run(fmt.Sprint("by_file=", byFile), func(t *testing.T) {
				db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
				l := newLab(t, db)
				from := l.end()
				if byFile {
					from.GTIDs = ""
				}
				l.insert("lost")
				testkit.Must(t, db.Purge(context.Background()))
				l.start(from)
				l.expect("", nil)
				if len(l.rec.holes()) != 1 || l.rec.holes()[0].Cause != outbox.GapPurged || l.rec.holes()[0].From.File != from.File {
					t.Fatalf("gaps %+v", l.rec.holes())
				}
			})
		}
	})
}

// A09, A11: another server that does not have the recorded one's history.
func TestA09_A11_ForeignServerIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		other := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		info, end, err := lookAt(other.Root())(context.Background())
		testkit.Must(t, err)
		l.insert("a")
		rec := &recorder{source: lookAt(l.sql), recorded: info.ID, checkpoint: end}
		r := New(Config{Server: server.Config{Address: l.db.Addr(), User: "root"}, Tables: nil, Recorded: rec.record}, rec, l.log, prometheus.NewRegistry())
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		var foreign *ForeignSourceError
		if err := r.Run(ctx, end); !errors.As(err, &foreign) || foreign.Recorded != info.ID {
			t.Fatalf("Run: %v", err)
		}
		if len(rec.connects)+len(rec.txns) != 0 {
			t.Fatal("something was offered")
		}
	})
}

// A10: the same server with less history.
func TestA10_ShorterHistory(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		l := newLab(t, db)
		l.start(l.end())
		l.insert("a")
		l.published(1)
		l.stop()
		l.rec.checkpoint = l.end()
		l.exec(db.ResetStatement())
		l.insert("b")
		l.start(l.rec.checkpoint)
		l.fence()
		if len(l.rec.holes()) != 1 || l.rec.holes()[0].Cause != outbox.GapShorter {
			t.Fatalf("gaps %+v", l.rec.holes())
		}
	})
}

// A13: a second reader with the same server id. MariaDB disconnects the first one; that one must not disconnect the second.
func TestA13_SameServerID(t *testing.T) {
	l := newLab(t, testkit.SharedMariaDB(t))
	id := func(c *Config) { c.ServerID = 4711 }
	l.start(l.end(), id)
	l.insert("before") // the reader reports connected before it requests the log
	l.published(1)
	second := &recorder{source: lookAt(l.sql)}
	first, rec := l.reader, l.rec
	l.rec = second
	l.start(l.end(), id)
	l.wait("the first to be thrown off", func() bool { return !first.State().Connected })
	if text := first.State().Error; !strings.Contains(text, "uses server_id 4711 on this server") || !strings.Contains(text, "source.server_id") {
		t.Errorf("the first says %q", text)
	}
	if metric(t, l.reg, "canal_outbox_reconnects_total") != 0 {
		t.Error("the second reader was disconnected too")
	}
	l.insert("a")
	l.published(1)
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if len(rec.connects) != 1 {
		t.Errorf("the first connected %d times", len(rec.connects))
	}
}

// A13: MySQL lets both read. The older reader finds the other one in the list of replicas, reports it while it is there, and does
// not take its own connection for another reader.
func TestA13_SameServerIDOnMySQL(t *testing.T) {
	l := newLab(t, testkit.SharedMySQL(t))
	core, lines := observer.New(zap.WarnLevel)
	l.log = zap.New(core)
	id := func(c *Config) { c.ServerID = 4712 }
	l.start(l.end(), id)
	testkit.Exec(t, l.db.Root(), fmt.Sprintf("KILL %d", l.dumpThread()))
	l.insert("a")
	l.published(1)
	first := l.reader
	status := "Com_show_replicas"
	if l.db.Before(8, 0) {
		status = "Com_show_slave_hosts"
	}
	looks := func() (n int) {
		var name string
		testkit.Must(t, l.db.Root().QueryRow("SHOW GLOBAL STATUS LIKE '"+status+"'").Scan(&name, &n))
		return n
	}
	before := looks()
	l.wait("a look at the list", func() bool { return looks() > before+1 })
	if text := first.State().Warning; text != "" {
		t.Fatalf("alone, it says %q", text)
	}
	l.log = zap.NewNop()
	l.rec = &recorder{source: lookAt(l.sql)}
	l.start(l.end(), id)
	l.wait("a word on the other one", func() bool {
		return strings.Contains(first.State().Warning, "another replica or process uses server_id 4712 on this server")
	})
	before = looks()
	l.wait("more looks at the list", func() bool { return looks() > before+2 })
	if n := lines.FilterMessageSnippet("uses server_id 4712").FilterMessageSnippet("source.server_id").Len(); n != 1 {
		t.Errorf("%d lines about it: %v", n, lines.All())
	}
	l.stop()
	l.wait("it to be alone again", func() bool { return first.State().Warning == "" })
}

// A14, A55: a half-open connection is closed after three heartbeats, and does not delay the stop.
func TestA14_A55_HalfOpenConnection(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		proxy := testkit.NewProxy(t, l.db.Addr())
		l.start(l.end(), through(proxy))
		l.insert("a")
		l.published(1)
		proxy.Hole(true)
		l.insert("b")
		l.wait("the reader to give up", func() bool { return !l.reader.State().Connected })
		proxy.Hole(false)
		if got := joined(l.published(2)); got != "a,b" {
			t.Fatalf("published %s", got)
		}
		proxy.Hole(true)
		l.stop()
	})
}

// A15: the session's wait for the client is longer than the server's setting.
func TestA15_WriteTimeoutOfTheSession(t *testing.T) {
	l := newLab(t, testkit.SharedMySQL(t))
	l.start(l.end())
	thread := l.dumpThread()
	l.wait("the server to show the session's variables", func() bool { // it omits threads that are busy
		var seconds int
		err := l.sql.QueryRow("SELECT VARIABLE_VALUE FROM performance_schema.variables_by_thread JOIN performance_schema.threads USING (THREAD_ID) "+
			"WHERE VARIABLE_NAME = 'net_write_timeout' AND PROCESSLIST_ID = ?", thread).Scan(&seconds)
		if err == nil && seconds != 600 {
			t.Fatalf("net_write_timeout is %d", seconds)
		}
		return err == nil
	})
}

// A15: a handler that blocks holds the stream back, and nothing is lost.
func TestA15_BackPressure(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		gate := make(chan struct{})
		l.rec = &recorder{source: lookAt(l.sql), offer: func(*outbox.Txn) error { <-gate; return nil }}
		l.start(l.end())
		const n = 200
		for i := range n {
			_, err := l.sql.Exec(insertRow, fmt.Sprint("k", i), strings.Repeat("x", 20_000))
			testkit.Must(t, err)
		}
		l.wait("the lag to grow", func() bool { return l.reader.State().Lag > 4*l.cfg.Heartbeat })
		close(gate)
		if keys := l.published(n); keys[n-1] != fmt.Sprint("k", n-1) {
			t.Fatalf("the last row is %s", keys[n-1])
		}
		if streams := l.streams(); streams != 1 {
			t.Errorf("%d streams: the stall broke the connection", streams)
		}
	})
}

// A16, A17: no lag when idle or when only others write; a long transaction's time is that of its commit.
func TestA16_A17_Lag(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.exec("CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY)")
		l.start(l.end())
		tx, err := l.sql.Begin()
		testkit.Must(t, err)
		_, err = tx.Exec(insertRow, "slow", "x")
		testkit.Must(t, err)
		opened := time.Now()
		l.wait("the transaction to be open for some time, and no lag during the writes of others", func() bool {
			l.exec("INSERT INTO other VALUES ()")
			return time.Since(opened) > 2500*time.Millisecond && l.reader.State().Lag < 2*time.Second
		})
		before := time.Now()
		testkit.Must(t, tx.Commit())
		l.published(1)
		since := l.rec.sent()[0].Since
		if after := time.Now(); since.Before(before.Add(-100*time.Millisecond)) || since.After(after.Add(100*time.Millisecond)) {
			t.Errorf("latency counts from %v, the COMMIT was sent at %v and read before %v", since, before, after)
		}
		l.caughtUp()
		l.noLag()
	})
}

// noLag waits until an idle reader shows no lag: a late heartbeat leaves it uncertain until the next one.
func (l *lab) noLag() {
	l.t.Helper()
	l.wait("no lag when idle", func() bool { return l.reader.State().Lag == 0 })
}

// A transaction that the handler refuses is offered again.
func TestRefusedOfferComesAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		refusals := 0
		l.rec = &recorder{source: lookAt(l.sql), offer: func(txn *outbox.Txn) error {
			if len(txn.Messages) > 0 && txn.Messages[0].Key == "b" && refusals < 3 {
				refusals++
				return errors.New("not now")
			}
			return nil
		}}
		l.start(l.end())
		for _, key := range []string{"a", "b", "c"} {
			l.insert(key)
		}
		if got := joined(l.published(3)); got != "a,b,c" {
			t.Fatalf("published %s", got)
		}
	})
}

func TestFailoverGoesOnByGTID(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		flavor = testkit.Needs(t, flavor, "8.0", "column names in its log")
		primary := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		replica := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor, Args: []string{"--log-slave-updates"}})
		testkit.Must(t, replica.ReplicateFrom(context.Background(), primary))
		l := newLab(t, primary)
		proxy := testkit.NewProxy(t, primary.Addr())
		l.start(l.end(), through(proxy))
		l.insert("a")
		l.published(1)
		l.rec.mu.Lock()
		l.rec.checkpoint = l.reader.State().Position
		l.rec.mu.Unlock()
		l.insert("b")
		l.published(2)
		testkit.Must(t, replica.CatchUp(context.Background(), primary))
		proxy.SetTarget(replica.Addr())
		proxy.Cut()
		second := replica.Connect(t, l.schema)
		testkit.Exec(t, second, insertRow, "c", "x")
		l.wait("c, perhaps behind b once more", func() bool { return slices.Contains(l.rec.keys(), "c") })
		keys := l.rec.keys()
		failover := slices.ContainsFunc(l.rec.streams(), func(c connect) bool { return c.failover && c.from.File == "" && c.from.GTIDs != "" })
		if !failover || keys[len(keys)-1] != "c" || len(l.rec.holes()) > 0 {
			t.Fatalf("published %v, streams %+v, gaps %+v", keys, l.rec.streams(), l.rec.holes())
		}
	})
}
