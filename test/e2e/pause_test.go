package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// A pause stops the reader, the sweep and the timers; it outlives a restart, says who made it, and nothing is lost by it, not even
// where the server purges its log meanwhile.
func TestPause(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB}), frequentSweeps)
	l.start()
	l.commit("before")
	l.sent()
	pause := func(reason string) *outbox.Pause {
		p, err := l.admin().Pause(ctx, outbox.Pause{Reason: reason})
		testkit.Must(t, err)
		return p
	}
	first := pause("moving a topic")
	if again := pause("another one"); *again != *first {
		t.Errorf("the second pause is %+v, the first one was %+v", again, first)
	}
	if err := l.admin().Sweep(ctx); err == nil || !strings.Contains(err.Error(), "paused by unix user ") {
		t.Errorf("a sweep while paused: %v", err)
	}
	// still waits until sweeps and timers have looked at the rows and left them alone.
	still := func(rows ...string) {
		t.Helper()
		looked := l.metric("sweep_runs_total", `result="paused"`)
		l.wait("two sweeps that take nothing", func() bool { return l.metric("sweep_runs_total", `result="paused"`) > looked+2 })
		for _, key := range rows {
			if l.records()[key] != nil {
				t.Errorf("%s was published while the relay was paused", key)
			}
		}
		s, err := l.admin().Status(ctx)
		testkit.Must(t, err)
		if s.Paused == nil || *s.Paused != *first || s.State != "degraded" || s.Source.State != "paused" ||
			!strings.Contains(strings.Join(s.Problems, "\n"), "the relay is "+first.String()) {
			t.Errorf("status of a paused relay: %+v, source %+v", s.Paused, s.Source)
		}
		if l.metric("paused_seconds") == 0 {
			t.Error("the metric does not show the pause")
		}
	}
	l.commit("paused")
	l.session("SET SESSION sql_log_bin = 0", insert("hidden"))
	l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, next_retry_time) " +
		"VALUES ('order', 'due', 'orders', 'body of due', NOW(3) + INTERVAL 300 MICROSECOND)")
	still("paused", "hidden", "due")

	// The checkpoint can be moved meanwhile; the relay stays paused, over a restart too.
	_, err := l.admin().SetCheckpoint(ctx, operator.Target{Latest: true})
	testkit.Must(t, err)
	l.commit("moved")
	still("paused", "hidden", "due", "moved")
	l.stop()
	l.commit("stopped")
	testkit.Must(t, l.db.Purge(ctx))
	l.launch(app.Options{Version: "test"})
	l.wait("the relay to be paused again", func() bool { return l.metric("sweep_runs_total", `result="paused"`) > 0 })
	still("paused", "hidden", "due", "moved", "stopped")

	testkit.Must(t, l.admin().Resume(ctx))
	testkit.Must(t, l.admin().Resume(ctx))
	l.reading()
	l.commit("after")
	l.account("before", "paused", "hidden", "due", "moved", "stopped", "after")
	l.wantGaps("operator", "purged")
	if s, err := l.admin().Status(ctx); err != nil || s.Paused != nil || l.metric("paused_seconds") != 0 {
		t.Errorf("after the pause: %+v, %v", s.Paused, err)
	}

	// Without a running relay the state directory is paused, and a relay that starts finds it so.
	l.stop()
	offline, err := app.OpenOffline(t.Context(), l.config(), true)
	testkit.Must(t, err)
	first, err = offline.Pause(ctx, outbox.Pause{By: "an operator", Since: first.Since, Reason: "at rest"})
	testkit.Must(t, err)
	testkit.Must(t, offline.Close())
	l.commit("at rest")
	l.launch(app.Options{Version: "test"})
	l.wait("the relay to be paused at its start", func() bool { return l.metric("sweep_runs_total", `result="paused"`) > 0 })
	still("at rest")
	testkit.Must(t, l.admin().Resume(ctx))
	l.reading()
	l.account("before", "paused", "hidden", "due", "moved", "stopped", "after", "at rest")
}
