package e2e

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// A35, A36: a primary that waits for a replica's acknowledgement after it has synced its log (AFTER_SYNC) shows a transaction
// to the relay before the replica has it, and before any session sees its rows. The relay publishes it then; its mark waits
// for the row and nothing is published again. Were the primary lost then, the message would be of a transaction
// that the replica lacks.
func TestA35_A36_PublishedBeforeTheReplicaHasIt(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.Needs(t, flavor, "9.7", "plugins in its archive")})
		prefix := "rpl_semi_sync_master_"
		withoutReplica := "wait_no_slave"
		if flavor == testkit.MySQL {
			prefix, withoutReplica = "rpl_semi_sync_source_", "wait_no_replica"
			testkit.Exec(t, db.Root(), "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
		}
		l := newLab(t, db)
		l.start()
		l.settled("settled")
		for _, setting := range []string{"timeout = 3600000", "wait_point = 'AFTER_SYNC'", withoutReplica + " = 1", "enabled = 1"} {
			testkit.Exec(t, db.Root(), "SET GLOBAL "+prefix+setting)
		}
		committed := make(chan error, 1)
		go func() {
			_, err := l.sql.Exec(insert("waits"))
			committed <- err
		}()
		l.wait("the message", func() bool { return len(l.records()["waits"]) == 1 })
		select {
		case err := <-committed:
			t.Fatalf("the commit did not wait for a replica: %v", err)
		default:
		}
		if n := l.count(); n != 1 {
			t.Errorf("%d rows can be seen, want that of before", n)
		}
		testkit.Exec(t, db.Root(), "SET GLOBAL "+prefix+"enabled = 0") // as if the replica had answered
		testkit.Must(t, <-committed)
		l.account("settled", "waits")
		if n := l.fromSweep(); n != 0 {
			t.Errorf("%d rows came from the sweep", n)
		}
	})
}
