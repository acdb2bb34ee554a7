package harm

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// Watch counts a session that waits for a lock of the watched user, on both servers.
func TestWatchSeesAWait(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		db := testkit.SharedDatabase(t, flavor)
		schema := db.CreateSchema(t)
		root := db.Connect(t, schema)
		testkit.Exec(t, root, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
		testkit.Exec(t, root, "INSERT INTO t VALUES (1, 1)")
		testkit.Exec(t, root, "DROP USER IF EXISTS harmful")
		testkit.Must(t, db.CreateUser(t.Context(), "harmful", "secret", "SELECT, UPDATE ON "+schema+".*"))
		other, err := db.Open("harmful", "secret", schema)
		testkit.Must(t, err)
		defer other.Close()
		tx, err := other.BeginTx(t.Context(), nil)
		testkit.Must(t, err)
		_, err = tx.ExecContext(t.Context(), "UPDATE t SET n = 2")
		testkit.Must(t, err)
		watch := Watch(t, db, "harmful")
		testkit.WaitFor(t, 30*time.Second, "a sample without waits", func() bool {
			_, samples := watch.Counts()
			return samples > 0
		})
		waited := make(chan error, 1)
		go func() {
			_, err := root.Exec("UPDATE t SET n = 3")
			waited <- err
		}()
		testkit.WaitFor(t, 30*time.Second, string(flavor)+" to show the lock wait", func() bool {
			seen, _ := watch.Counts()
			return seen > 0
		})
		watch.Stop()
		testkit.Must(t, tx.Rollback())
		testkit.Must(t, <-waited)
	}
}
