package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// D12: candidates come from a replica. One that shows rows as PENDING that were sent long ago causes no copy; one whose replication has stopped
// causes no loss: here are rows that only a regular sweep finds, because no INSERT in the log shows them as PENDING.
func TestD12_CandidatesOfAReplicaThatIsBehind(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		ctx := context.Background()
		primary := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		replica := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		testkit.Must(t, replica.ReplicateFrom(ctx, primary))
		l := newLab(t, primary, fmt.Sprintf("fallback: {interval: 200ms, threshold: 1s, read_from: %q}", replica.Addr()))
		l.start()
		sent, hidden := keys("sent", 50), keys("hidden", 20)
		l.commit(sent...)
		l.sent()
		for _, key := range hidden {
			l.exec("INSERT INTO t_local_message SET biz_type = 'order', biz_key = ?, topic = 'orders', message_body = ?, status = 9", key, body(key))
		}
		testkit.Must(t, replica.CatchUp(ctx, primary))
		asked := replica.Connect(t, l.schema)
		if lag, following, err := server.ReplicaLag(ctx, asked); err != nil || !following || lag > time.Minute {
			t.Errorf("the replica is %v behind, follows %v: %v", lag, following, err)
		}
		if _, _, err := server.ReplicaLag(ctx, l.sql); err == nil || !strings.Contains(err.Error(), "it is no replica") {
			t.Errorf("the primary says how far it is behind: %v", err)
		}

		wantReplicaFinding(t, l, server.OK, "") // the index by which the sweep looks there

		there := replica.Connect(t, l.schema)
		testkit.Exec(t, there, "UPDATE t_local_message SET status = 0, created_at = NOW(3) - INTERVAL 5 MINUTE WHERE status = 2")
		l.wait("two sweeps that take what the replica shows", func() bool { return l.metric("sweep_rows_total", `result="gone"`) >= 100 })
		l.compare(sent...)

		stop := map[testkit.Flavor]string{testkit.MySQL: "STOP REPLICA SQL_THREAD", testkit.MariaDB: "STOP SLAVE SQL_THREAD"}[flavor]
		if replica.Before(8, 0) {
			stop = "STOP SLAVE SQL_THREAD"
		}
		testkit.Exec(t, there, stop)
		if _, following, err := server.ReplicaLag(ctx, asked); err != nil || following {
			t.Errorf("a replica whose replication has stopped follows %v: %v", following, err)
		}
		l.exec("UPDATE t_local_message SET status = 0, created_at = NOW(3) - INTERVAL 1 HOUR WHERE status = 9")
		l.account(slices.Concat(sent, hidden)...)
		if n := l.metric("sweep_replica_errors_total", ""); n != 0 {
			t.Errorf("the replica did not show its rows %v times", n)
		}
		testkit.Exec(t, there, "DROP TABLE t_local_message")
		wantReplicaFinding(t, l, server.Warning, "does not show "+l.schema+".t_local_message")
		testkit.Must(t, replica.Kill())
		wantReplicaFinding(t, l, server.Warning, replica.Addr())
	})
}

// wantReplicaFinding: doctor says something of that severity about the replica, with these words.
func wantReplicaFinding(t *testing.T, l *lab, severity server.Severity, words string) {
	t.Helper()
	about := func(f server.Finding) bool { return strings.HasPrefix(f.Subject, "fallback.read_from") }
	var all []server.Finding
	l.wait("doctor to come to the replica in its time", func() bool { // on a slow machine it may not
		all = app.Doctor(t.Context(), l.config())
		return slices.ContainsFunc(all, about)
	})
	if !slices.ContainsFunc(all, func(f server.Finding) bool {
		return about(f) && f.Severity == severity && strings.Contains(f.What, words)
	}) {
		t.Errorf("no %s about the replica with %q: %+v", severity, words, all)
	}
}
