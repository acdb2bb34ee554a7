package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// SIGKILL on a real Kafka, between the broker and the journal and at any time: with read_back.enabled nothing is sent twice. The same kills
// without it are the control, and send some rows again.
func TestP3_ReadBackAfterKill(t *testing.T) {
	kills := 4
	if *long {
		kills = 40
	}
	for _, c := range []struct {
		name, extra string
		copies      bool
	}{{"off", "", true}, {"on", "read_back: {enabled: true}", false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kafka := testkit.SharedKafka(t)
			name := fmt.Sprintf("read-back-%s-%d", c.name, time.Now().UnixNano())
			testkit.Must(t, kafka.CreateTopic(t.Context(), name, 4, nil))
			db := testkit.SharedDatabase(t, testkit.MySQL)
			schema := db.CreateSchema(t)
			b := &bed{db: db, sql: db.Connect(t, schema), broker: relay.Kafka{Kafka: kafka}}
			b.table = relay.NewLayout(t, b.sql, schema, nil)
			b.load = relay.NewLoad(t, b.table, true, name)
			b.relay = relay.New(t, relay.Options{Source: db.Addr(), Tables: []*relay.Table{b.table}, Sink: b.broker.Sink(), Extra: c.extra})
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
			if got := account.Duplicates() > 0; got != c.copies {
				t.Errorf("%d copies after %d kills: %v", account.Duplicates(), kills, account.Copies)
			}
			b.stop(t)
		})
	}
}
