package e2e

import (
	"context"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A07: the log we need was purged while we were down. All rows come out all the same, the gap is recorded once and stays.
func TestA07_PurgedWhileDown(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}))
		l.start()
		l.commit("before")
		l.sent()
		l.stop()
		missed := keys("missed", 1000)
		for chunk := 0; chunk < len(missed); chunk += 50 {
			l.exec(insert(missed[chunk : chunk+50]...))
		}
		testkit.Must(t, l.db.Purge(context.Background()))
		l.start()
		l.commit("after")
		l.account(append(missed, "before", "after")...)
		l.wantGaps("purged")
		if n := l.metric("gaps_total", `cause="purged"`); n != 1 {
			t.Errorf("gaps_total is %v", n)
		}
		l.stop()
		l.start()
		l.account(append(missed, "before", "after")...)
		l.wantGaps("purged")
		l.stop()
		lesser := newEveryLayout(t, l.db, fake(t), lesser()...)
		lesser.Start(t)
		lesser.purged(1)
		lesser.stopInTime()
	})
}

// A08: first start on a server with old rows whose log was purged. They come from the sweep, once, and no gap alarms.
func TestA08_FirstStartOnOldRows(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}))
		old := keys("old", 700)
		l.exec(insert(old...))
		l.exec("UPDATE t_local_message SET status = 2 WHERE biz_key = 'old13'")
		testkit.Must(t, l.db.Purge(context.Background()))
		l.start()
		l.commit("new")
		want := append(append([]string{"new"}, old[:13]...), old[14:]...)
		l.account(want...)
		l.stop()
		l.start()
		l.account(want...)
		l.wantGaps()
		if n := l.metric("gaps_unacknowledged"); n != 0 {
			t.Errorf("%v gaps wait for an operator", n)
		}
	})
}

// A10: the server has less history than the checkpoint, as after a crash or a restore. It is the same server, so it is a gap:
// the relay follows the new history and the sweep covers the gap.
func TestA10_HistoryReset(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}))
		l.start()
		before := keys("before", 20)
		l.commit(before...)
		l.sent()
		l.stop()
		l.commit("missed")
		l.exec(l.db.ResetStatement())
		l.start()
		l.commit("after")
		l.account(append(before, "missed", "after")...)
		l.wantGaps("shorter")
		l.stop()
		l.start()
		l.commit("restarted")
		l.account(append(before, "missed", "after", "restarted")...)
		l.wantGaps("shorter")
	})
}

// A10: the same while the relay runs: the dump ends and the history behind it is another one.
func TestA10_HistoryResetWhileRunning(t *testing.T) {
	t.Parallel()
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MySQL})
	l := newLab(t, db)
	l.start()
	before := keys("before", 20)
	l.commit(before...)
	l.sent()
	l.killDump()
	l.exec(db.ResetStatement())
	l.commit("after")
	l.account(append(before, "after")...)
	for _, cause := range l.gaps() {
		if cause != "shorter" && cause != "purged" {
			t.Errorf("a gap of cause %s", cause)
		}
	}
}

// killDump ends the readers' sessions on the server.
func (l *lab) killDump() {
	l.t.Helper()
	l.wait("the dump thread", func() bool { return l.kill("COMMAND LIKE 'Binlog Dump%'") > 0 })
}

// kill ends the sessions that a condition on the process list selects, and returns how many there were.
func (l *lab) kill(condition string) (killed int) {
	l.t.Helper()
	killed, err := l.db.KillSessions(l.t.Context(), condition)
	testkit.Must(l.t, err)
	return killed
}

// A05: the server is away for a while and comes back.
func TestA05_ServerDown(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor, Durable: true}))
		l.start()
		want := keys("before", 50)
		l.commit(want...)
		testkit.Must(t, l.db.Kill())
		l.wait("the reader to notice", func() bool { return l.metric("reader_connected") == 0 })
		status, err := l.admin().Status(context.Background())
		testkit.Must(t, err)
		if status.State != "degraded" || len(status.Problems) == 0 {
			t.Errorf("status while the server is down: %s %q", status.State, status.Problems)
		}
		testkit.Must(t, l.db.Start(context.Background()))
		l.commit("after")
		l.reading()
		l.sent()
		l.swept()
		// The broker may have taken rows whose transaction the kill cut, so only copies count here.
		l.compare(append(want, "after")...)
		l.wantGaps()
	})
}
