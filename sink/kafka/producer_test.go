package kafka

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The client library answers a topic's first message before it lists the topic's partitions, if the broker is quick. The list is held up here by the
// partitioner of a second message.
func TestExactlyEndsTransactionsOfNewTopics(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	ends := make(chan bool, 1)
	f.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case ends <- r.(*kmsg.EndTxnRequest).Commit:
		default:
		}
		return nil, nil, false
	})
	held := make(chan struct{})
	client, err := kgo.NewClient(kgo.SeedBrokers(f.Addr()), kgo.TransactionalID("relay-0"), kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(
		func(string) func(*kgo.Record, int) int {
			return func(r *kgo.Record, _ int) int {
				if string(r.Value) == "second" {
					<-held
				}
				return 0
			}
		})))
	testkit.Must(t, err)
	p := &producer{Client: client, listed: map[string]bool{}}
	defer p.Close()
	testkit.Must(t, p.BeginTransaction())
	answered := make(chan error, 1)
	p.TryProduce(t.Context(), &kgo.Record{Topic: topic, Partition: -1, Value: []byte("first")}, func(_ *kgo.Record, err error) { answered <- err })
	p.Client.TryProduce(t.Context(), &kgo.Record{Topic: topic, Partition: -1, Value: []byte("second")}, nil)
	testkit.Must(t, <-answered)
	ended := make(chan error, 1)
	go func() { ended <- p.EndTransaction(t.Context(), kgo.TryCommit) }()
	select {
	case err := <-ended:
		t.Errorf("EndTransaction returned %v before the topic was listed", err)
		close(held)
		return
	case <-time.After(100 * time.Millisecond): // pace: it has begun
	}
	close(held)
	testkit.Must(t, <-ended)
	if !<-ends {
		t.Error("the transaction was not committed")
	}
}
