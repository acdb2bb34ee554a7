package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/sinktest"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
)

var ourTables = []string{"shop.t_local_message"}

// newExactly returns a sink that has recovered, and what it found. The test closes it unless it was killed.
func newExactly(t testing.TB, addr string, change ...func(*config)) (*Exactly, []outbox.Identity) {
	t.Helper()
	x := openExactly(t, addr, change...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	rows, err := x.Recover(ctx, ourTables)
	testkit.Must(t, err)
	return x, rows
}

// onFakeExactly returns a cluster with a topic and a state topic, and a sink that has recovered.
func onFakeExactly(t testing.TB) (*fakekafka.Cluster, string, *Exactly) {
	t.Helper()
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	makeState(t, f.Addr())
	x, _ := newExactly(t, f.Addr())
	return f, topic, x
}

func openExactly(t testing.TB, addr string, change ...func(*config)) *Exactly {
	t.Helper()
	cfg := testConfig(addr)
	for _, c := range change {
		c(&cfg)
	}
	log := zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
	core, seen := observer.New(zap.InfoLevel)
	s, err := open(cfg, log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, core) })), prometheus.NewRegistry())
	testkit.Must(t, err)
	x := exactly(s, "relay", &brokers{s, "relay"}, usualBounds)
	logs.Store(x, seen)
	t.Cleanup(func() { x.shut(t) })
	return x
}

// logs are the lines of each sink.
var logs sync.Map

// awaitLine waits until the sink has logged a line.
func awaitLine(t testing.TB, x *Exactly, part string) {
	t.Helper()
	seen, _ := logs.Load(x)
	testkit.WaitFor(t, patience, part, func() bool {
		return slices.ContainsFunc(seen.(*observer.ObservedLogs).All(), func(e observer.LoggedEntry) bool { return strings.Contains(e.Message, part) })
	})
}

// shut closes the sink, unless it is closed.
func (x *Exactly) shut(t testing.TB) {
	if x.closed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := x.Close(ctx); err != nil {
		t.Log(err)
	}
	if err := x.Finish(ctx); err != nil {
		t.Log(err)
	}
}

// kill ends the sink as a kill of its process does: nothing is ended or marked.
func (x *Exactly) kill() {
	x.life.Lock()
	x.closed = true
	x.life.Unlock()
	x.stop()
	<-x.stopped
	x.producers.dropAll()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = x.Sink.Close(ctx)
}

// makeState creates the state topic.
func makeState(t testing.TB, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	testkit.Must(t, testkit.CreateKafkaTopic(ctx, addr, stateTopic("relay"), 1, map[string]string{"cleanup.policy": "compact"}))
}

// committedCopies counts the messages of a topic as a reader of committed records sees them.
func committedCopies(t testing.TB, addr, topic string) map[string]int {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.MetadataMinAge(20*time.Millisecond))
	testkit.Must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ranges, _, err := findRanges(ctx, kadm.NewClient(client), topic, time.UnixMilli(1), time.Time{}, true)
	testkit.Must(t, err)
	n := map[string]int{}
	testkit.Must(t, readRanges(ctx, client, topic, ranges, func(r *kgo.Record) error { n[record(r).MessageID]++; return nil }))
	return n
}

func eachOnce(t testing.TB, addr, topic string, want int) {
	t.Helper()
	var n map[string]int
	testkit.WaitFor(t, patience, "all messages to be visible", func() bool { // soon after the answer to the end of a transaction
		n = committedCopies(t, addr, topic)
		return len(n) >= want
	})
	if len(n) != want {
		t.Errorf("%d messages are visible of %d", len(n), want)
	}
	for id, n := range n {
		if n != 1 {
			t.Errorf("message %s is visible %d times", id, n)
		}
	}
}

func settle(x *Exactly, list []*outbox.Message) {
	done := make([]outbox.Completion, len(list))
	for i, m := range list {
		done[i] = outbox.Completion{Identity: m.Identity, Action: outbox.ActionMarkSent}
	}
	x.Settled(done)
}

func sameRows(t testing.TB, got []outbox.Identity, want []*outbox.Message) {
	t.Helper()
	ids := map[outbox.Identity]bool{}
	for _, m := range want {
		ids[m.Identity] = true
	}
	var more []outbox.Identity
	for _, id := range got {
		if !ids[id] {
			more = append(more, id)
		}
		delete(ids, id)
	}
	if len(more) > 0 {
		t.Errorf("%d rows more are found, one of them %v", len(more), more[0])
	}
	if len(ids) > 0 {
		t.Errorf("%d rows are not found, one of them %v", len(ids), slices.Collect(maps.Keys(ids))[0])
	}
}

// I3: what is committed is found by the next process until it is settled.
func TestExactlyFindsWhatIsCommitted(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	makeState(t, f.Addr())
	x, found := newExactly(t, f.Addr())
	sameRows(t, found, nil)
	all := messages(topic, 3000)
	wantClass(t, outbox.ClassNone, publish(t, x, all...)...)
	settle(x, all[:1000])
	x.kill()
	y, found := newExactly(t, f.Addr())
	sameRows(t, found, all) // the first thousand was settled after the last record
	settle(y, all)
	y.shut(t)
	z, found := newExactly(t, f.Addr())
	sameRows(t, found, nil)
	z.shut(t)
	eachOnce(t, f.Addr(), topic, 3000)
}

// A relay of other tables does not take over.
func TestExactlyRefusesAnotherRelaysName(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	wantClass(t, outbox.ClassNone, publish(t, x, messages(topic, 1)...)...)
	x.shut(t)
	y := openExactly(t, f.Addr())
	_, err := y.Recover(t.Context(), []string{"other.outbox"})
	var no *sink.NoProofError
	if !errors.As(err, &no) || !strings.Contains(no.Why, "transactional_id") || !strings.Contains(no.Why, ourTables[0]) {
		t.Errorf("%v", err)
	}
}

// exactlyHarness runs the suite of all sinks in transactions.
func exactlyHarness(addr func() string) sinktest.Harness {
	h := harness(addr)
	plain := h.New
	h.New = func(t testing.TB) sink.Sink {
		s := plain(t).(*Sink)
		name := fmt.Sprintf("relay.%x", rand.Uint64())
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		testkit.Must(t, testkit.CreateKafkaTopic(ctx, addr(), stateTopic(name), 1, map[string]string{"cleanup.policy": "compact"}))
		x := exactly(s, name, &brokers{s, name}, usualBounds)
		_, err := x.Recover(ctx, ourTables)
		testkit.Must(t, err)
		return finishing{x}
	}
	return h
}

// finishing finishes when it is closed.
type finishing struct{ *Exactly }

func (f finishing) Close(ctx context.Context) error {
	err := f.Exactly.Close(ctx)
	f.producers.dropAll()
	return err
}

func TestExactlySuiteOnFakeBroker(t *testing.T) { suiteOnFake(t, exactlyHarness) }

// A start does not find rows that were settled before a mark.
func TestExactlyMark(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	all := messages(topic, 300)
	wantClass(t, outbox.ClassNone, publish(t, x, all...)...)
	settle(x, all[:100])
	testkit.Must(t, x.Mark(t.Context()))
	x.kill()
	sameRows(t, recovered(t, f.Addr()), all[100:])
}

// Some time after the last message the state topic shows what is settled, without another message.
func TestExactlyMarksWhenIdle(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	all := messages(topic, 30)
	wantClass(t, outbox.ClassNone, publish(t, x, all...)...)
	settle(x, all)
	testkit.WaitFor(t, patience, "a mark", func() bool { return x.ledger.Mark() == nil })
	x.kill()
	sameRows(t, recovered(t, f.Addr()), nil)
}

// Kafka that is away makes a call of Mark fail: rows that were to be set back stay as they are.
func TestExactlyMarkFails(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	all := messages(topic, 1)
	wantClass(t, outbox.ClassNone, publish(t, x, all...)...)
	f.Stop()
	settle(x, all)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := x.Mark(ctx); err == nil {
		t.Error("Kafka has taken a mark")
	}
	testkit.Must(t, f.Start())
}

// A stop marks what is settled also when the coordinator has ended the epoch: after a pause of the process it has.
func TestExactlyMarksAtAStopInANewEpoch(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	all := messages(topic, 30)
	wantClass(t, outbox.ClassNone, publish(t, x, all...)...)
	f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: stateTopic("relay"), Err: kerr.InvalidProducerEpoch})
	settle(x, all)
	x.shut(t)
	sameRows(t, recovered(t, f.Addr()), nil)
}

// A stop that comes while a transaction is being ended finds out what became of it, and marks what is settled behind it.
func TestExactlyStopsWhileATransactionEnds(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	all := messages(topic, 30)
	wantClass(t, outbox.ClassNone, publish(t, x, all...)...)
	ending, first := make(chan struct{}), atomic.Bool{}
	f.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if !first.Swap(true) {
			close(ending)
			f.SleepControl(func() { <-x.stopped })
		}
		return nil, nil, false
	})
	settle(x, all[:10]) // the next idle mark
	<-ending
	settle(x, all[10:20])
	x.shut(t)
	if fenced := x.fenced.Load(); fenced != nil {
		t.Error(*fenced)
	}
	sameRows(t, recovered(t, f.Addr()), all[20:])
}

// A call of Mark fails when the sink is stopped before Kafka has said whether the record is stored.
func TestExactlyMarkIsUnsure(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	all := messages(topic, 1)
	wantClass(t, outbox.ClassNone, publish(t, x, all...)...)
	for _, key := range []kmsg.Key{kmsg.EndTxn, kmsg.InitProducerID} {
		f.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.KeepControl()
			return nil, errors.New("the connection breaks"), true
		})
	}
	settle(x, all)
	marked := make(chan error, 1)
	go func() { marked <- x.Mark(context.Background()) }()
	awaitLine(t, x, "did not say whether")
	x.kill()
	if err := <-marked; err == nil {
		t.Error("a mark is taken for stored")
	}
}

// Rows that are sent again because no consumer has finished them are SENT in their table: nothing settles them, so they must not fill the entries.
func TestExactlyRedeliveriesNeedNoProof(t *testing.T) {
	f, topic, x := onFakeExactly(t)
	all := messages(topic, 300)
	for _, m := range all[:200] {
		m.Path = outbox.PathRedelivery
	}
	wantClass(t, outbox.ClassNone, publish(t, x, all...)...)
	x.kill()
	sameRows(t, recovered(t, f.Addr()), all[200:])
	eachOnce(t, f.Addr(), topic, 300)
}
