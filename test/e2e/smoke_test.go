package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/twmb/franz-go/pkg/kfake"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestSmoke(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) { smoke(t, flavor) })
	}
}

func smoke(t *testing.T, flavor testkit.Flavor) {
	d := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
	schema := d.CreateSchema(t)
	ddl, err := migrations.DDL("t_local_message", "t_local_message")
	if err != nil {
		t.Fatal(err)
	}
	db := d.Connect(t, schema)
	testkit.Exec(t, db, ddl)
	testkit.Exec(t, db, "INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', 'old', 'orders', '{}')")
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	yaml := fmt.Sprintf(`
source: {address: %s, user: root}
tables: [{name: %s.t_local_message, preset: t_local_message}]
sink: {kafka: {brokers: [%q]}}
checkpoint: {dir: %s}
admin: {listen: ""}
`, d.Addr(), schema, k.ListenAddrs()[0], t.TempDir())
	cfg, _, err := config.Parse("smoke", []byte(yaml), nil)
	if err != nil {
		t.Fatal(err)
	}
	log, _ := zap.NewDevelopment()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, cfg, app.Options{Version: "test"}, log) }()
	for i := range 1000 {
		testkit.Exec(t, db, "INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', ?, 'orders', '{}')", i)
	}
	testkit.WaitFor(t, 20*time.Second, "all rows SENT", func() bool {
		var n int
		if err := db.QueryRow("SELECT COUNT(*) FROM t_local_message WHERE status = 2").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1001
	})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	records, err := testkit.ReadKafkaTopic(t.Context(), k.ListenAddrs()[0], "orders")
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 1001 {
		t.Fatalf("%d records", len(records))
	}
	t.Logf("%s %v %s", records[0].Key, records[0].Headers, records[0].Value)
}
