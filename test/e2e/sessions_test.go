package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A05, A12: all our sessions are killed again and again under load, those of the acknowledgements too. Nothing is lost or
// repeated, and no session of anybody else is touched.
func TestA05_A12_SessionsKilledRepeatedly(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.user = "killed"
		testkit.Must(t, l.db.CreateUser(context.Background(), l.user, "", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT, UPDATE ON "+l.schema+".*"))
		t.Cleanup(func() { testkit.Exec(t, l.db.Root(), "DROP USER killed") })
		l.start()
		bystander := l.session("BEGIN", insert("bystander"))
		var want []string
		for round := range 8 {
			rows := keys(fmt.Sprintf("r%d-", round), 60)
			for i := 0; i < len(rows); i += 2 {
				l.exec(insert(rows[i], rows[i+1]))
				if i == 30 {
					// Not the session that was killed before, which the reader may not have missed yet.
					l.wait("the reader to be back", func() bool { return l.metric("reconnects_total") >= float64(round) })
					l.reading()
					// The reader counts as connected a little before the server lists its session.
					l.wait("the dump thread", func() bool { return l.kill("USER = 'killed' AND COMMAND LIKE 'Binlog Dump%'") > 0 })
					l.kill("USER = 'killed'")
				}
			}
			want = append(want, rows...)
		}
		bystander.exec("COMMIT")
		l.account(append(want, "bystander")...)
		l.wantGaps()
		if n := l.metric("reconnects_total"); n < 6 {
			t.Errorf("only %v reconnects: the sessions were not hit", n)
		}
	})
}

// A13: two relays with one server id. MariaDB throws the older one off: it says so, does not answer in kind, and its rows
// still come out by the sweep.
func TestA13_ServerIDCollision(t *testing.T) {
	t.Parallel()
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB})
	first, second := newLab(t, db, frequentSweeps), newLab(t, db)
	first.serverID, second.serverID = 424242, 424242
	first.start()
	first.commit("before")
	first.account("before")
	second.start()
	first.wait("the older one to be thrown off", func() bool { return first.metric("reader_connected") == 0 })
	first.wantCollision()
	first.commit(keys("swept", 20)...)
	second.commit(keys("read", 20)...)
	first.account(append(keys("swept", 20), "before")...)
	second.account(keys("read", 20)...)
	if n := second.metric("reconnects_total"); n != 0 {
		t.Errorf("the newer one was thrown off %v times", n)
	}
	if n := first.metric("reconnects_total", `class="fenced"`); n != 1 {
		t.Errorf("the older one tried %v times", n)
	}
}

// wantCollision waits until status and log name the server id that another replica uses, and the setting to change.
func (l *lab) wantCollision() {
	l.t.Helper()
	plain := func(text string) bool {
		return strings.Contains(text, "another replica or process uses server_id 424242 on this server") && strings.Contains(text, "source.server_id")
	}
	l.wait("status to report the collision", func() bool {
		status, err := l.admin().Status(context.Background())
		return err == nil && status.State == "degraded" && slices.ContainsFunc(status.Problems, plain)
	})
	told := func(e observer.LoggedEntry) bool {
		return plain(e.Message) || plain(fmt.Sprint(e.ContextMap()["error"]))
	}
	lines := func() int { return l.logs.Filter(told).FilterLevelExact(zap.WarnLevel).Len() }
	l.wait("the log to report the collision", func() bool { return lines() > 0 }) // shortly after status does
	if n := lines(); n != 1 {
		l.t.Errorf("%d log lines report the collision", n)
	}
}

// A14: the network between the relay and its database swallows everything for a while. Rows committed meanwhile come out
// when it heals, once.
func TestA14_NetworkHole(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		proxy := l.through()
		l.start()
		want := keys("before", 100)
		l.commit(want...)
		proxy.Hole(true)
		during := keys("during", 50)
		l.commit(during...)
		l.wait("the reader to give up", func() bool { return l.metric("reader_connected") == 0 })
		proxy.Hole(false)
		l.commit("after")
		testkit.WaitFor(t, 2*time.Minute, "the reader to come back", func() bool { return l.metric("reader_connected") == 1 })
		l.account(append(append(want, during...), "after")...)
		l.wantGaps()
	})
}
