package crash

import (
	"context"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// transactions is a Kafka broker to which the relay publishes in transactions.
type transactions struct {
	relay.Kafka
	sink string
}

// Sink implements relay.Broker.
func (k transactions) Sink() string { return k.sink }

// Read implements relay.Broker without the producers: all relays have the same ones, one after the other.
func (k transactions) Read(ctx context.Context, topic string) ([]relay.Record, error) {
	records, err := k.Kafka.Read(ctx, topic)
	for i := range records {
		records[i].Producer = ""
	}
	return records, err
}

// inTransactions opens the shared broker with a topic, and with the state topic of a relay.
func inTransactions(t *testing.T, topic string) relay.Broker {
	return transactionsOn(t, testkit.SharedKafka(t), topic)
}

func transactionsOn(t *testing.T, kafka *testkit.Kafka, topic string) relay.Broker {
	testkit.Must(t, kafka.CreateTopic(t.Context(), topic, 4, nil))
	return transactions{relay.Kafka{Kafka: kafka}, relay.ExactlyOnceSink(t, kafka, topic)}
}

// SIGKILL between the broker and the journal, and at any time: a reader of committed records gets each row once.
func TestP3_ExactlyOnceAfterKill(t *testing.T) {
	onPairs(t, map[string]opens{"kafka": inTransactions}, func(t *testing.T, flavor testkit.Flavor, open opens) {
		readBackAfterKills(t, flavor, open, "", "", false)
	})
}

// The same when another relay takes over, with a state directory of its own: after SIGKILL, SIGSTOP for longer than the lease, and a cut between
// the relay and the database.
func TestP3_ExactlyOnceAfterTakeOver(t *testing.T) {
	onPairs(t, map[string]opens{"kafka": inTransactions}, func(t *testing.T, flavor testkit.Flavor, open opens) {
		readBackAfterTakeOvers(t, flavor, open, "", false, "kill", "stop", "hole")
	})
}

// The broker, which is the coordinator of the transactions, is killed and frozen, and its replies are cut, while rows come: a reader of
// committed records gets each row once, the rows of a key in order, and the relay continues by itself.
func TestP3_ExactlyOnceWhileTheBrokerFails(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	t.Parallel()
	proxy := testkit.NewProxy(t, "127.0.0.1:1") // the broker's address is known when it runs
	kafka := testkit.NewKafka(t, testkit.KafkaOptions{Config: map[string]string{"advertised.listeners": "PLAINTEXT://" + proxy.Addr()}})
	proxy.SetTarget(kafka.Addr())
	b := newLoadBed(t, testkit.Flavors()[0], func(t *testing.T, topic string) relay.Broker { return transactionsOn(t, kafka, topic) }, ", ordering: key", "")
	faults := []struct {
		name string
		make func(n int)
	}{
		{"replies cut", func(n int) { <-proxy.CutAfter(int64(n%7) * 1777) }},
		{"killed", func(int) {
			testkit.Must(t, kafka.Kill())
			testkit.Must(t, kafka.Start(t.Context()))
		}},
		{"frozen", func(int) {
			testkit.Must(t, kafka.Pause())
			b.written(t, 200)
			testkit.Must(t, kafka.Resume())
		}},
		{"all connections cut", func(int) { proxy.Cut() }},
	}
	b.relay.AwaitConnected(t)
	stop := b.load.StartPaced(t, 3, 50*time.Millisecond) // one row of a key is on its way at a time
	for n := range times(len(faults), 1) {
		b.more(t)
		t.Log(faults[n%len(faults)].name)
		faults[n%len(faults)].make(n)
	}
	b.more(t)
	stop()
	account := b.account(t)
	t.Logf("%d copies of %d rows", account.Duplicates(), b.load.Ledger.Len())
	b.noCopies(t, account)
	b.stop(t)
}

// written waits until the load has written n more rows.
func (b *bed) written(t *testing.T, rows int) {
	t.Helper()
	want := b.load.Ledger.Len() + rows
	testkit.WaitFor(t, patience, "more rows to be written", func() bool { return b.load.Ledger.Len() >= want })
}

// more waits until rows that are written from now on are SENT.
func (b *bed) more(t *testing.T) {
	t.Helper()
	want := b.load.Ledger.Len() + 100
	testkit.WaitFor(t, patience, "more rows to be SENT", func() bool { return b.table.Count(t, b.table.Sent()) >= want })
}
