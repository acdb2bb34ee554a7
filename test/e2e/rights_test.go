package e2e

import (
	"context"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// The account is recreated without the privilege to read the end of the log, and the privilege is granted later. The running
// relay works again by itself: no session keeps the privileges of an earlier login.
func TestPrivilegesGivenBack(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		monitor := map[testkit.Flavor]string{testkit.MySQL: "REPLICATION CLIENT", testkit.MariaDB: "BINLOG MONITOR"}[flavor]
		l.user = "regained"
		account := func(grants ...string) {
			testkit.Exec(t, l.db.Root(), "DROP USER IF EXISTS regained")
			testkit.Must(t, l.db.CreateUser(context.Background(), l.user, "", append(grants, "SELECT, UPDATE ON "+l.schema+".*")...))
		}
		account("REPLICATION SLAVE, " + monitor + " ON *.*")
		t.Cleanup(func() { testkit.Exec(t, l.db.Root(), "DROP USER regained") })
		l.start()
		l.commit("before")
		l.account("before")

		account("REPLICATION SLAVE ON *.*")
		l.kill("USER = 'regained'")
		l.wait("the relay to miss the privilege", func() bool {
			status, err := l.admin().Status(context.Background())
			return err == nil && status.State == "degraded" && l.metric("reader_connected") == 0
		})
		l.commit("without")
		testkit.Exec(t, l.db.Root(), "GRANT "+monitor+" ON *.* TO regained")
		l.wait("the relay to work again", func() bool {
			status, err := l.admin().Status(context.Background())
			return err == nil && status.State == "working" && l.metric("reader_connected") == 1
		})
		l.commit("after")
		l.account("before", "without", "after")
	})
}
