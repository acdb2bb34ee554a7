package kafka

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

const patience = 3 * time.Minute

// inbox collects the results of one or more Sends.
type inbox struct {
	t       testing.TB
	mu      sync.Mutex
	results map[*outbox.Message]sink.Result
	grown   chan struct{}
}

func newInbox(t testing.TB) *inbox {
	return &inbox{t: t, results: map[*outbox.Message]sink.Result{}, grown: make(chan struct{}, 1)}
}

func (in *inbox) done(results []sink.Result) {
	in.mu.Lock()
	for _, r := range results {
		in.results[r.Message] = r
	}
	in.mu.Unlock()
	signal(in.grown)
}

// wait returns the results of the messages when all have one.
func (in *inbox) wait(messages ...*outbox.Message) []sink.Result {
	in.t.Helper()
	deadline := time.After(patience)
	for {
		if out := in.have(messages); len(out) == len(messages) {
			return out
		}
		select {
		case <-in.grown:
		case <-deadline:
			in.t.Fatalf("%d of %d results after %s", len(in.have(messages)), len(messages), patience)
		}
	}
}

func (in *inbox) have(messages []*outbox.Message) (out []sink.Result) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, m := range messages {
		if r, there := in.results[m]; there {
			out = append(out, r)
		}
	}
	return out
}

// publish sends the messages in one batch and returns their results, in order.
func publish(t testing.TB, s sink.Sink, messages ...*outbox.Message) []sink.Result {
	t.Helper()
	in := newInbox(t)
	s.Send(append([]*outbox.Message(nil), messages...), in.done)
	return in.wait(messages...)
}

func wantClass(t testing.TB, want outbox.Class, results ...sink.Result) {
	t.Helper()
	for _, r := range results {
		if r.Class != want {
			t.Fatalf("message %s: class %s (%s), want %s", r.Message.MessageID, r.Class, r.Reason, want)
		}
	}
}

// messages makes n messages of one key.
func messages(topic string, n int) []*outbox.Message {
	out := make([]*outbox.Message, n)
	for i := range out {
		id := fmt.Sprint(i + 1)
		out[i] = &outbox.Message{
			Identity: outbox.Identity{Table: "shop.t_local_message", ID: id, MessageID: "order:" + id},
			Topic:    topic, Key: "k", ShardingKey: "k", Partition: outbox.NoPartition, Body: []byte("body " + id),
		}
	}
	return out
}

// copies counts what a topic holds by message id.
func copies(t testing.TB, addr, topic string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, s := range stored(t, addr, topic) {
		n[s.MessageID]++
	}
	return n
}
