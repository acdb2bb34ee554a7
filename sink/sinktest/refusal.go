package sinktest

import (
	"bytes"
	"context"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// amidst puts the odd messages between good ones of the same key.
func (b *bench) amidst(topic string, odd ...*outbox.Message) (batch, good []*outbox.Message) {
	for range 200 {
		good = append(good, b.message(topic, "k"))
	}
	batch = append(batch, good[:100]...)
	batch = append(batch, odd...)
	return append(batch, good[100:]...), good
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
	batch, good := b.amidst(topic, poison)
	b.send(batch...)
	b.settle()
	b.want(outbox.ClassPermanent, poison)
	b.want(outbox.ClassNone, good...)
	b.wantStored(topic, good)
}

func poisonAtTheBroker(t *testing.T, b *bench) {
	if b.Poison == nil {
		t.Skip("this sink finds every poison before the send")
	}
	topic := b.Topic(t)
	poison, another := b.message(topic, "k"), b.message(topic, "k")
	b.Poison(poison)
	b.Poison(another)
	batch, good := b.amidst(topic, poison, another)
	b.send(batch...)
	b.settle()
	b.want(outbox.ClassPermanent, poison, another)
	b.want(outbox.ClassNone, good...)
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
	batch, good := b.amidst(topic, illegal...)
	b.send(batch...)
	b.settle()
	b.want(outbox.ClassPermanent, illegal...)
	b.want(outbox.ClassNone, good...)
	b.wantStored(topic, good)
}

func unknownTopic(t *testing.T, b *bench) {
	if b.UnknownTopic == "" {
		t.Skip("this sink knows every topic")
	}
	topic := b.Topic(t)
	unknown := b.message(b.UnknownTopic, "k")
	batch, good := b.amidst(topic, unknown)
	b.send(batch...)
	b.settle()
	b.want(outbox.ClassTopic, unknown)
	b.want(outbox.ClassNone, good...)
	b.wantStored(topic, good)
	b.resend(unknown) // now the client has the topic's state
	b.settle()
	b.want(outbox.ClassTopic, unknown)
}

func probeAndTopics(t *testing.T, b *bench) {
	ctx, cancel := context.WithTimeout(t.Context(), b.Patience)
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
