package sinktest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"go.uber.org/goleak"
)

// bench is the set-up of one case: a sink, and every result it reported.
type bench struct {
	Harness
	t    testing.TB
	sink sink.Sink

	mu      sync.Mutex
	results map[*outbox.Message]sink.Result
	sent    map[*outbox.Message]bool
	faults  []string      // violations found in done, reported at the end by the case's own goroutine
	closed  bool          // Close has returned
	after   bool          // results are expected after Close has returned
	changed chan struct{} // gets a token when results grew
	made    int
}

// newBench starts a sink; at the end of the case it is closed (when the case did not) and the leak check runs.
func newBench(t testing.TB, h Harness) *bench {
	before := goleak.IgnoreCurrent()
	b := &bench{
		Harness: h, t: t, sink: h.New(t),
		results: map[*outbox.Message]sink.Result{}, sent: map[*outbox.Message]bool{},
		changed: make(chan struct{}, 1),
	}
	t.Cleanup(func() {
		b.close(patience)
		b.report()
		if err := goleak.Find(append(h.Leaks, before)...); err != nil {
			t.Errorf("goroutines left after Close: %v", err)
		}
	})
	return b
}

// message returns a message with a unique id and a body that names it.
func (b *bench) message(topic, key string) *outbox.Message {
	b.made++
	id := fmt.Sprintf("%d", b.made)
	return &outbox.Message{
		Identity: outbox.Identity{Table: "shop.t_local_message", ID: id, MessageID: "order:" + id},
		Topic:    topic, Key: key, ShardingKey: key, Body: []byte("body " + id),
		Partition: outbox.NoPartition, MaxRetry: -1, Since: time.Now(),
	}
}

// send sends the messages in one batch.
func (b *bench) send(messages ...*outbox.Message) {
	b.mu.Lock()
	for _, m := range messages {
		b.sent[m] = true
	}
	b.mu.Unlock()
	b.sink.Send(append([]*outbox.Message(nil), messages...), b.done)
}

// resend sends messages again whose earlier result was not a success.
func (b *bench) resend(messages ...*outbox.Message) {
	b.mu.Lock()
	for _, m := range messages {
		delete(b.results, m)
	}
	b.mu.Unlock()
	b.send(messages...)
}

func (b *bench) done(results []sink.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed && !b.after {
		b.faults = append(b.faults, fmt.Sprintf("%d results came after Close had returned", len(results)))
	}
	for _, r := range results {
		b.take(r)
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *bench) take(r sink.Result) {
	if r.Message == nil || !b.sent[r.Message] {
		b.faults = append(b.faults, fmt.Sprintf("a result for a message that was never sent: %+v", r.Outcome))
		return
	}
	if first, twice := b.results[r.Message]; twice {
		b.faults = append(b.faults, fmt.Sprintf("message %s has two results: %+v, then %+v", r.Message.MessageID, first.Outcome, r.Outcome))
	}
	if least := r.Class.Scope(); r.Scope != least && (least != outbox.ScopeCluster || r.Class != outbox.ClassUnknown && r.Scope == outbox.ScopeMessage) {
		b.faults = append(b.faults, fmt.Sprintf("message %s: class %s with scope %s", r.Message.MessageID, r.Class, r.Scope))
	}
	if (r.Class == outbox.ClassNone) != (r.Reason == "") {
		b.faults = append(b.faults, fmt.Sprintf("message %s: class %s with reason %q", r.Message.MessageID, r.Class, r.Reason))
	}
	b.results[r.Message] = r
}

// until waits for a condition over the results, which is called with the lock held.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		b.mu.Lock()
		met, have, want := ok(), len(b.results), len(b.sent)
		b.mu.Unlock()
		if met {
			return
		}
		select {
		case <-b.changed:
		case <-deadline.C:
			b.t.Fatalf("no %s after %s: %d of %d results are there", what, patience, have, want)
		}
	}
}

// settle waits until every message that was sent has a result.
func (b *bench) settle() {
	b.t.Helper()
	b.until("result for each message", func() bool { return len(b.results) == len(b.sent) })
}

// result returns the result of a settled message.
func (b *bench) result(m *outbox.Message) sink.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.results[m]
}

// want checks that each message has the class.
func (b *bench) want(class outbox.Class, messages ...*outbox.Message) {
	b.t.Helper()
	for _, m := range messages {
		if r := b.result(m); r.Class != class || r.Message == nil {
			b.t.Fatalf("message %s: class %s (%s), want %s", m.MessageID, r.Class, r.Reason, class)
		}
	}
}

// sendAll sends the messages in one batch, waits for all results, and checks that each of these has the class.
func (b *bench) sendAll(class outbox.Class, messages ...*outbox.Message) {
	b.t.Helper()
	b.send(messages...)
	b.settle()
	b.want(class, messages...)
}

// close closes the sink once, within the given time, and checks that Close is bounded.
func (b *bench) close(limit time.Duration) {
	b.t.Helper()
	b.mu.Lock()
	again := b.closed
	b.mu.Unlock()
	if again {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	returned := make(chan error, 1)
	go func() {
		err := b.sink.Close(ctx)
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		returned <- err
	}()
	select {
	case err := <-returned:
		if err != nil {
			b.t.Logf("close: %v", err)
		}
	case <-time.After(limit + patience):
		b.t.Fatal("Close did not return")
	}
}

// report fails the case for every violation, and for messages without a result after Close.
func (b *bench) report() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.t.Error(fault)
	}
	if len(b.results) != len(b.sent) && !b.t.Failed() {
		b.t.Errorf("%d messages were sent, %d have a result", len(b.sent), len(b.results))
	}
}
