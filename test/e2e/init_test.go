package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// From a table as its owners have it to the first message, with two commands: init --apply and run. The relay works with the account that
// init made, and can stand by.
func TestInit(t *testing.T) {
	all := slices.Concat(layouts.All(), layouts.LogOnly())
	if testing.Short() {
		all = all[:1]
	}
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		t.Parallel()
		for _, layout := range all {
			t.Run(layout.Name, func(t *testing.T) { firstMessage(t, testkit.SharedDatabase(t, flavor), layout) })
		}
	})
}

func firstMessage(t *testing.T, db *testkit.Database, layout *layouts.Layout) {
	topic := "orders"
	cluster := fakekafka.New(t, 1, map[string]int{topic: 1, layouts.EventTopic + topic: 1})
	schema := db.CreateSchema(t)
	account := "init_" + schema
	t.Cleanup(func() { testkit.Exec(t, db.Root(), "DROP USER IF EXISTS '"+account+"'@'%'") })
	sql := db.Connect(t, schema)
	testkit.Exec(t, sql, layout.Create())
	r := relay.New(t, relay.Options{Sink: cluster.Sink()})
	r.Env = []string{"CANAL_OUTBOX_ADMIN_LISTEN="}
	testkit.Must(t, os.Remove(r.Config()))

	args := []string{
		"init", "--address", db.Addr(), "--user", "root", "--account", account, "--table", schema + "." + layout.Table, "--kafka", cluster.ListenAddrs()[0],
		"--state", r.StateDir(), "--apply", "--yes",
	}
	if layout.Name == "B" { // no row shows its words
		for _, status := range slices.Sorted(maps.Keys(layout.Codes)) {
			args = append(args, "--code", status+"="+layout.Codes[status])
		}
	}
	out, errOut, code := r.Command(t, args...)
	if code != 0 || !strings.Contains(out, "canal-outbox run --config "+r.Config()) {
		t.Fatalf("init ended with %d:\n%s%s", code, out, errOut)
	}
	t.Logf("init:\n%s", out)

	r.Start(t)
	query, values := layout.Insert(1, topic, `{"order":1}`)
	testkit.Exec(t, sql, query, values...)
	if layout.LogOnly() {
		topic = layouts.EventTopic + topic
	}
	testkit.WaitFor(t, patience, "the message", func() bool {
		records, err := cluster.Read(t.Context(), topic)
		testkit.Must(t, err)
		return len(records) == 1 && records[0].MessageID == layout.MessageID(1)
	})
	if !layout.LogOnly() {
		testkit.WaitFor(t, patience, "the row to be SENT", func() (sent bool) {
			testkit.Must(t, sql.QueryRow(fmt.Sprintf("SELECT %s FROM `%s`", layout.Sent(), layout.Table)).Scan(&sent))
			return sent
		})
	}
	if s, err := r.Status(); err != nil || s.Lease.State != "active" || len(s.Problems) > 0 {
		t.Errorf("the relay's status: %+v, %v", s, err)
	}
	r.Stop(t)
}
