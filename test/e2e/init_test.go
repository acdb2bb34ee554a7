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

// The same with RocketMQ, whose names of topics have no dots: a rule covers the topics of Debezium's layout.
func TestInitRocketMQ(t *testing.T) {
	t.Parallel()
	relay.Long(t)
	broker := relay.RocketMQ{RocketMQ: testkit.SharedRocketMQ(t)}
	for _, layout := range []*layouts.Layout{layouts.All()[0], layouts.LogOnly()[0]} {
		t.Run(layout.Name, func(t *testing.T) {
			topic := "init-" + layout.Name
			sent := topic
			if layout.LogOnly() {
				sent = "outbox-event-" + topic
			}
			testkit.Must(t, broker.CreateTopic(t.Context(), sent, 4))
			initiate(t, testkit.SharedMariaDB(t), layout, topic, sent, broker, "--rocketmq", broker.NameServer())
		})
	}
}

func firstMessage(t *testing.T, db *testkit.Database, layout *layouts.Layout) {
	t.Helper()
	const topic = "orders"
	cluster := fakekafka.New(t, 1, map[string]int{topic: 1, layouts.EventTopic + topic: 1})
	sent := topic
	if layout.LogOnly() {
		sent = layouts.EventTopic + topic
	}
	initiate(t, db, layout, topic, sent, cluster, "--kafka", cluster.ListenAddrs()[0])
}

// initiate makes the table, runs both commands, inserts a row with a topic, and waits until its message is in the topic sent.
func initiate(t *testing.T, db *testkit.Database, layout *layouts.Layout, topic, sent string, broker relay.Broker, flags ...string) {
	t.Helper()
	schema := db.CreateSchema(t)
	account := "init_" + schema
	t.Cleanup(func() { testkit.Exec(t, db.Root(), "DROP USER IF EXISTS '"+account+"'@'%'") })
	sql := db.Connect(t, schema)
	testkit.Exec(t, sql, layout.Create())
	r := relay.New(t, relay.Options{Sink: broker.Sink()})
	r.Env = []string{"CANAL_OUTBOX_ADMIN_LISTEN="}
	testkit.Must(t, os.Remove(r.Config()))

	args := append([]string{
		"init", "--address", db.Addr(), "--user", "root", "--account", account, "--table", schema + "." + layout.Table, "--state", r.StateDir(), "--apply", "--yes",
	}, flags...)
	if layout.Name == "B" { // no row shows its words
		for _, status := range slices.Sorted(maps.Keys(layout.Codes)) {
			args = append(args, "--code", status+"="+layout.Codes[status])
		}
	}
	out, errOut, code := r.Command(t, args...)
	if code != 0 || !strings.Contains(out, "canal-outbox run --config "+r.Config()) {
		t.Fatalf("init ended with %d:\n%s%s", code, out, errOut)
	}

	r.Start(t)
	query, values := layout.Insert(1, topic, `{"order":1}`)
	testkit.Exec(t, sql, query, values...)
	testkit.WaitFor(t, patience, "the message", func() bool {
		records, err := broker.Read(t.Context(), sent)
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
