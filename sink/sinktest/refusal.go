package sinktest

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// amidst sends the odd messages between good ones of the same key: the odd ones come to the class, and the good ones are sent.
func (b *bench) amidst(topic string, class outbox.Class, odd ...*outbox.Message) (good []*outbox.Message) {
	b.t.Helper()
	for range 200 {
		good = append(good, b.message(topic, "k"))
	}
	b.send(slices.Concat(good[:100], odd, good[100:])...)
	b.settle()
	b.want(class, odd...)
	b.want(outbox.ClassNone, good...)
	return good
}

func oversize(t *testing.T, b *bench) {
	if b.MaxBytes == 0 {
		t.Skip("this sink has no limit of size")
	}
	topic := b.Topic(t)
	fits, large := b.message(topic, "k"), b.message(topic, "k")
	fits.Body = bytes.Repeat([]byte{'f'}, b.MaxBytes)
	large.Body = bytes.Repeat([]byte{'l'}, 2*b.MaxBytes)
	b.send(fits, large)
	b.settle()
	b.want(outbox.ClassNone, fits)
	b.want(outbox.ClassPermanent, large)
	b.wantStored(topic, []*outbox.Message{fits})
}

func poisonInTheMiddle(t *testing.T, b *bench) {
	if b.MaxBytes == 0 {
		t.Skip("this sink has no limit of size")
	}
	topic := b.Topic(t)
	poison := b.message(topic, "k")
	poison.Body = bytes.Repeat([]byte{'p'}, 2*b.MaxBytes)
	b.wantStored(topic, b.amidst(topic, outbox.ClassPermanent, poison))
}

func poisonAtTheBroker(t *testing.T, b *bench) {
	if b.Poison == nil {
		t.Skip("this sink finds every poison before the send")
	}
	topic := b.Topic(t)
	poison, another := b.message(topic, "k"), b.message(topic, "k")
	b.Poison(poison)
	b.Poison(another)
	good := b.amidst(topic, outbox.ClassPermanent, poison, another)
	if n := len(byID(t, b.Read(t, topic))); n != len(good) { // the order is unspecified: not all succeeded at the first try
		t.Errorf("the topic holds %d messages, want %d", n, len(good))
	}
}

func illegalTopic(t *testing.T, b *bench) {
	topic := b.Topic(t)
	illegal := []*outbox.Message{b.message("", "k")}
	if b.IllegalTopic != "" {
		illegal = append(illegal, b.message(b.IllegalTopic, "k"))
	}
	b.wantStored(topic, b.amidst(topic, outbox.ClassPermanent, illegal...))
}

func unknownTopic(t *testing.T, b *bench) {
	if b.UnknownTopic == "" {
		t.Skip("this sink has every topic")
	}
	topic := b.Topic(t)
	unknown := b.message(b.UnknownTopic, "k")
	b.wantStored(topic, b.amidst(topic, outbox.ClassTopic, unknown))
	b.resend(unknown) // now the client has the topic's state
	b.settle()
	b.want(outbox.ClassTopic, unknown)
}

func probeAndTopics(t *testing.T, b *bench) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.sink.Probe(ctx); err != nil {
		t.Fatalf("probe of a working broker: %v", err)
	}
	topic := b.Topic(t)
	topics, faulty := []string{topic}, 0
	for _, name := range []string{b.UnknownTopic, b.IllegalTopic} {
		if name != "" {
			topics, faulty = append(topics, name), faulty+1
		}
	}
	faults, err := b.sink.Topics(ctx, topics)
	if err != nil {
		t.Fatalf("topics: %v", err)
	}
	if len(faults) != faulty || faults[topic] != nil {
		t.Errorf("faulty topics: %v", faults)
	}
	if faults, err = b.sink.Topics(ctx, nil); err != nil || len(faults) != 0 {
		t.Errorf("no topics: %v, %v", faults, err)
	}
}
