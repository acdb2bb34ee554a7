package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// SIGKILL beside a real broker, between the broker and the journal and at any time: with read_back nothing is sent twice. The same
// kills without it are the control, and send some rows again.
func TestP3_ReadBackAfterKill(t *testing.T) {
	kills := 4
	if *long {
		kills = 40
	}
	for kind, open := range map[string]func(t *testing.T, topic string) relay.Broker{
		"kafka": func(t *testing.T, topic string) relay.Broker {
			kafka := testkit.SharedKafka(t)
			testkit.Must(t, kafka.CreateTopic(t.Context(), topic, 4, nil))
			return relay.Kafka{Kafka: kafka}
		},
		"rocketmq": func(t *testing.T, topic string) relay.Broker {
			return relay.RocketMQ{RocketMQ: testkit.NewRocketMQ(t, testkit.RocketMQOptions{
				Topics: map[string]int{topic: 4}, Config: map[string]string{"flushDiskType": "SYNC_FLUSH"},
			})}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			if kind != "kafka" && testing.Short() {
				t.Skip("-short: make test-rest runs it")
			}
			t.Run("off", func(t *testing.T) { readBackAfterKills(t, open, kills, "read_back: {enabled: false}", true) })
			t.Run("on", func(t *testing.T) { readBackAfterKills(t, open, kills, "", false) })
		})
	}
}

func readBackAfterKills(t *testing.T, open func(*testing.T, string) relay.Broker, kills int, extra string, copies bool) {
	t.Parallel()
	topic := fmt.Sprintf("read-back-%d", time.Now().UnixNano())
	broker := open(t, topic)
	db := testkit.SharedDatabase(t, testkit.MySQL)
	schema := db.CreateSchema(t)
	b := &bed{db: db, sql: db.Connect(t, schema), broker: broker}
	b.table = relay.NewLayout(t, b.sql, schema, nil)
	b.load = relay.NewLoad(t, b.table, broker.TakesEmpty(), topic)
	b.relay = relay.New(t, relay.Options{Source: db.Addr(), Tables: []*relay.Table{b.table}, Sink: broker.Sink(), Extra: extra})
	b.relay.Start(t) // rows of before come from a first sweep, in no order
	b.stop(t)
	for n := range kills {
		if n%2 == 0 {
			at := b.relay.StartUntil(t, "before-journal", 3)
			b.relay.AwaitConnected(t)
			b.load.RunUntil(t, b.relay, at, 3)
		} else {
			b.relay.Start(t)
			b.load.Run(t, 300+37*n, 3)
		}
		b.relay.Kill()
	}
	b.relay.Start(t)
	account := b.account(t)
	t.Logf("%d copies of %d rows after %d kills", account.Duplicates(), b.load.Ledger.Len(), kills)
	if got := account.Duplicates() > 0; got != copies {
		t.Errorf("%d copies after %d kills: %v", account.Duplicates(), kills, account.Copies)
	}
	b.stop(t)
}
