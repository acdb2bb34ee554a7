package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// I1, I2: the end of a transaction has no answer, and was not done: its messages go again, each once.
func TestExactlyEndLostBefore(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	var lost atomic.Bool
	f.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if lost.Load() {
			return nil, nil, false
		}
		return nil, errors.New("the connection breaks"), true
	})
	in := newInbox(t)
	all := messages(topic, 500)
	x.Send(append([]*outbox.Message(nil), all...), in.done)
	awaitLine(t, x, "did not say whether")
	lost.Store(true)
	wantClass(t, outbox.ClassNone, in.wait(all...)...)
	awaitLine(t, x, "the transaction was not committed")
	eachOnce(t, f.Addr(), topic, 500)
}

// I1: the end of a transaction was done, and its answer is lost: nothing goes again.
func TestExactlyEndLostAfter(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	var lost atomic.Bool
	f.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if r.(*kmsg.EndTxnRequest).Commit && !lost.Swap(true) { // one without it is of a transaction that was late on a busy machine
			f.LoseReplies(true)
		}
		return nil, nil, false
	})
	in := newInbox(t)
	all := messages(topic, 500)
	x.Send(append([]*outbox.Message(nil), all...), in.done)
	awaitLine(t, x, "did not say whether")
	f.LoseReplies(false)
	wantClass(t, outbox.ClassNone, in.wait(all...)...)
	awaitLine(t, x, "the transaction was committed")
	eachOnce(t, f.Addr(), topic, 500)
	sameRows(t, recovered(t, f.Addr()), all)
}

// recovered is what a process finds that starts now. It fences the others.
func recovered(t *testing.T, addr string) []outbox.Identity {
	t.Helper()
	y, rows := newExactly(t, addr)
	y.kill()
	return rows
}

// I5: a process that another one has followed sends no more, and nothing that it had under way becomes visible.
func TestExactlyFencedSendsNoMore(t *testing.T) {
	fencedSendsNoMore(t, newFake(t))
}

// The model is no stricter than Kafka.
func TestExactlyFencedSendsNoMoreOnKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	fencedSendsNoMore(t, testkit.NewKafka(t, testkit.KafkaOptions{}))
}

func fencedSendsNoMore(t *testing.T, f interface{ Addr() string }) {
	topic := createTopic(t, f.Addr(), nil)
	makeState(t, f.Addr())
	x, _ := newExactly(t, f.Addr())
	all := messages(topic, 300)
	wantClass(t, outbox.ClassNone, publish(t, x, all[:100]...)...)
	y, found := newExactly(t, f.Addr())
	sameRows(t, found, all[:100])
	wantClass(t, outbox.ClassNone, publish(t, y, all[100:200]...)...)
	for _, r := range publish(t, x, all[200:]...) {
		if r.Class != outbox.ClassOutage || r.Scope != outbox.ScopeCluster {
			t.Fatalf("%+v", r.Outcome)
		}
	}
	if err := x.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "transactional_id") {
		t.Errorf("%v", err)
	}
	wantClass(t, outbox.ClassNone, publish(t, y, all[200:]...)...)
	eachOnce(t, f.Addr(), topic, 300)
}

// I5: the old process is about to end its transaction when the new one begins.
func TestExactlyFencedBeforeItsEnd(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	held, release := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	f.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if !once.Swap(true) {
			f.SleepControl(func() { close(held); <-release })
		}
		return nil, nil, false
	})
	in := newInbox(t)
	all := messages(topic, 100)
	x.Send(append([]*outbox.Message(nil), all...), in.done)
	<-held
	y, found := newExactly(t, f.Addr())
	sameRows(t, found, nil)
	wantClass(t, outbox.ClassNone, publish(t, y, all...)...)
	close(release)
	for _, r := range in.wait(all...) {
		if r.Class != outbox.ClassOutage {
			t.Fatalf("%+v", r.Outcome)
		}
	}
	eachOnce(t, f.Addr(), topic, 100)
}

// A broker that is killed right after it has decided forgets the ends of some transactions when it starts again (Kafka 4.3.1): readers of committed records
// get each message all the same, and nothing waits for ever.
func TestExactlyEndsWhatKafkaLeavesOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	k := testkit.NewKafka(t, testkit.KafkaOptions{})
	topic := createTopic(t, k.Addr(), nil)
	makeState(t, k.Addr())
	x, _ := newExactly(t, k.Addr())
	const rounds, each = 8, 25
	all := messages(topic, rounds*each)
	for n := range rounds {
		if n > 0 {
			testkit.Must(t, k.Kill())
			testkit.Must(t, k.Start(t.Context()))
		}
		rest := all[n*each : (n+1)*each]
		testkit.WaitFor(t, patience, "the messages to be sent", func() bool {
			var failed []*outbox.Message
			for i, r := range publish(t, x, rest...) {
				if r.Class != outbox.ClassNone {
					failed = append(failed, rest[i])
				}
			}
			rest = failed
			return len(rest) == 0
		})
	}
	seen, _ := logs.Load(x)
	t.Logf("%d ends were written again", seen.(*observer.ObservedLogs).FilterMessageSnippet("written again").Len())
	eachOnce(t, k.Addr(), topic, rounds*each)
	settle(x, all)
	testkit.Must(t, x.Mark(t.Context()))
	sameRows(t, recovered(t, k.Addr()), nil)
}

// Of what a dead process has left open, the coordinator says how it ended. A topic that is not there any more keeps no other from being ended.
func TestExactlyMends(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	gone := createTopic(t, f.Addr(), nil)
	id := int(x.ledger.Next(nil).Number % TransactionalIDs)
	p, err := x.coordinator.Open(t.Context(), id, nil)
	testkit.Must(t, err)
	defer p.Close()
	testkit.Must(t, p.BeginTransaction())
	batch := newBatch(messages(topic, 20), nil)
	answered := make(chan error, 20)
	for i := range batch.deliveries {
		d := &batch.deliveries[i]
		d.record = kgo.Record{Topic: topic, Value: d.message.Body, Context: d}
		p.TryProduce(d, &d.record, func(_ *kgo.Record, err error) { answered <- err })
	}
	ends := Ends{Place{gone, 0}: Unsure, Place{"never.there", 0}: Committed}
	for i := range batch.deliveries {
		testkit.Must(t, <-answered)
		ends[Place{topic, batch.deliveries[i].record.Partition}] = Unsure
	}
	admin(t, f.Addr(), func(ctx context.Context, a *kadm.Client) error {
		_, err := a.DeleteTopic(ctx, gone)
		return err
	})
	q, err := x.coordinator.Open(t.Context(), id, ends)
	testkit.Must(t, err)
	defer q.Close()
	for at, fate := range ends {
		if want := map[bool]Fate{true: Committed, false: Aborted}[at.Topic == "never.there"]; fate != want {
			t.Errorf("%v ended as %d", at, fate)
		}
	}
	eachOnce(t, f.Addr(), topic, 0)
}

// onlyThese publishes messages and wants some of them to fail with a class, and the others to be sent.
func onlyThese(t *testing.T, x *Exactly, all []*outbox.Message, class outbox.Class, bad func(i int) bool) {
	t.Helper()
	for i, r := range publish(t, x, all...) {
		want := outbox.ClassNone
		if bad(i) {
			want = class
		}
		if r.Class != want {
			t.Fatalf("message %d: %+v", i, r.Outcome)
		}
	}
}

// One bad message in each transaction keeps no other from being sent, once, and only it is refused.
func TestExactlyPoison(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Err: kerr.InvalidRecord, Count: -1, When: holds("poison")})
	all := messages(topic, 3000)
	for _, at := range []int{0, 500, 1999, 2999} {
		all[at].Body = []byte("poison")
	}
	onlyThese(t, x, all, outbox.ClassPermanent, func(i int) bool { return string(all[i].Body) == "poison" })
	eachOnce(t, f.Addr(), topic, 2996)
	order := stored(t, f.Addr(), topic)
	for i := 1; i < len(order); i++ {
		if a, b := number(order[i-1].MessageID), number(order[i].MessageID); a > b {
			t.Fatalf("%d is before %d", a, b)
		}
	}
	sameRows(t, recovered(t, f.Addr()), slices.Concat(all[1:500], all[501:1999], all[2000:2999]))
}

func number(messageID string) (n int) {
	_, _ = fmt.Sscanf(messageID, "order:%d", &n) // of messages
	return n
}

// A topic that does not exist fails its own messages alone.
func TestExactlyUnknownTopic(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	all := messages(topic, 200)
	for i := range all {
		if i%10 == 3 {
			all[i].Topic = "no.such.topic"
		}
	}
	onlyThese(t, x, all, outbox.ClassTopic, func(i int) bool { return i%10 == 3 })
	eachOnce(t, f.Addr(), topic, 180)
}

// A partition that is away fails its own messages alone.
func TestExactlyPartitionAway(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	fault := f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Partitions: []int32{2}, Err: kerr.NotLeaderForPartition, Count: -1})
	all := messages(topic, 40)
	for i := range all {
		all[i].Partition = int32(i % 4)
	}
	onlyThese(t, x, all, outbox.ClassOutage, func(i int) bool { return i%4 == 2 })
	fault.Remove()
	eachOnce(t, f.Addr(), topic, 30)
}

// What the state topic must be. Nothing is published before it is.
func TestExactlyRefusesTheStateTopic(t *testing.T) {
	try := func(t *testing.T, addr, want string) {
		t.Helper()
		y := openExactly(t, addr)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := y.Recover(ctx, ourTables)
		var no *sink.NoProofError
		if !errors.As(err, &no) || !strings.Contains(no.Why, want) {
			t.Errorf("%v", err)
		}
		for _, r := range publish(t, y, messages("any", 1)...) {
			if r.Class != outbox.ClassOutage {
				t.Errorf("%+v", r.Outcome)
			}
		}
	}
	t.Run("missing", func(t *testing.T) { try(t, newFake(t).Addr(), "kafka-topics.sh") })
	t.Run("with a retention", func(t *testing.T) {
		f := newFake(t)
		testkit.Must(t, testkit.CreateKafkaTopic(t.Context(), f.Addr(), stateTopic("relay"), 1, map[string]string{"cleanup.policy": "compact,delete"}))
		try(t, f.Addr(), "cleanup.policy=compact")
	})
	t.Run("truncated", func(t *testing.T) {
		f := newFake(t)
		topic := createTopic(t, f.Addr(), nil)
		makeState(t, f.Addr())
		x, _ := newExactly(t, f.Addr())
		all := messages(topic, 3)
		publish(t, x, all[0])
		var behind kadm.Offsets // behind the first entry
		admin(t, f.Addr(), func(ctx context.Context, a *kadm.Client) error {
			ends, err := a.ListEndOffsets(ctx, stateTopic("relay"))
			behind = ends.Offsets()
			return err
		})
		publish(t, x, all[1])
		publish(t, x, all[2])
		x.kill()
		admin(t, f.Addr(), func(ctx context.Context, a *kadm.Client) error {
			_, err := a.DeleteRecords(ctx, behind)
			return err
		})
		try(t, f.Addr(), "lost records")
	})
	t.Run("of another program", func(t *testing.T) {
		f := newFake(t)
		makeState(t, f.Addr())
		client, err := kgo.NewClient(kgo.SeedBrokers(f.Addr()))
		testkit.Must(t, err)
		defer client.Close()
		testkit.Must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: stateTopic("relay"), Key: []byte("1"), Value: []byte("hello")}).FirstErr())
		try(t, f.Addr(), "cannot read")
	})
}

func TestExactlySuiteOnKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	suiteOnKafka(t, exactlyHarness)
}

// A topic without rights keeps the state topic from being added to the transaction (brokers before 4.0 add all partitions or none).
func TestExactlyTopicWithoutRights(t *testing.T) {
	f := newFake(t)
	topic, denied := createTopic(t, f.Addr(), nil), createTopic(t, f.Addr(), nil)
	makeState(t, f.Addr())
	x, _ := newExactly(t, f.Addr())
	f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: denied, Err: kerr.TopicAuthorizationFailed, Count: -1})
	f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: stateTopic("relay"), Err: kerr.OperationNotAttempted, Count: 2})
	all := messages(topic, 20)
	for i := range 5 {
		all[i].Topic = denied
	}
	onlyThese(t, x, all, outbox.ClassTopic, func(i int) bool { return i < 5 })
	eachOnce(t, f.Addr(), topic, 15)
}

// I6: a transaction whose messages got no answer is ended though nothing else is sent.
func TestExactlyEndsWhatGotNoAnswer(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	fault := f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Partitions: []int32{2}, Err: kerr.NotLeaderForPartition, Count: -1})
	all := messages(topic, 4)
	for i := range all {
		all[i].Partition = 2
	}
	wantClass(t, outbox.ClassOutage, publish(t, x, all...)...)
	fault.Remove()
	var epochs atomic.Int64
	f.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		epochs.Add(1)
		return nil, nil, false
	})
	testkit.WaitFor(t, patience, "a new epoch, which ends the transaction", func() bool { return epochs.Load() > 0 })
}

// Rows may not be set back before the state topic was read: the start would take them for sent.
func TestExactlyNoMarkBeforeRecover(t *testing.T) {
	f := newFake(t)
	makeState(t, f.Addr())
	x := openExactly(t, f.Addr())
	if err := x.Mark(t.Context()); err == nil {
		t.Error("a mark is taken for stored")
	}
}
