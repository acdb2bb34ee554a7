package sinktest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

func emptyBatch(t *testing.T, b *bench) {
	b.send()
	m := b.message(b.Topic(t), "k")
	b.sendAll(outbox.ClassNone, m)
}

func largeBatch(t *testing.T, b *bench) {
	topic := b.Topic(t)
	all := b.keyed(topic, 10000)
	b.sendAll(outbox.ClassNone, all...)
	b.wantStored(topic, all)
}

// keyed makes n messages over 50 keys.
func (b *bench) keyed(topic string, n int) []*outbox.Message {
	all := make([]*outbox.Message, n)
	for i := range all {
		all[i] = b.message(topic, fmt.Sprintf("key-%d", i%50))
	}
	return all
}

// concurrentSend: the order within each sender's own keys must be kept.
func concurrentSend(t *testing.T, b *bench) {
	topic := b.Topic(t)
	const senders, batches, size = 6, 20, 15
	var all []*outbox.Message
	var wg sync.WaitGroup
	for s := range senders {
		var mine []*outbox.Message
		for i := range batches * size {
			mine = append(mine, b.message(topic, fmt.Sprintf("sender-%d-%d", s, i%3)))
		}
		all = append(all, mine...)
		wg.Go(func() {
			for i := range batches {
				b.send(mine[i*size : (i+1)*size]...)
			}
		})
	}
	wg.Wait()
	b.settle()
	b.want(outbox.ClassNone, all...)
	b.wantStored(topic, all)
}

func closeDuringSend(t *testing.T, b *bench) {
	topic := b.Topic(t)
	all := b.keyed(topic, 5000)
	b.send(all[:2500]...)
	b.send(all[2500:]...)
	b.close(patience)
	b.wantNoSurprise(topic, all)
	for _, m := range all { // the broker answers: every accepted message had time to be sent
		if r := b.result(m); r.Class != outbox.ClassNone {
			t.Fatalf("message %s: class %s (%s) although Close had time to drain", m.MessageID, r.Class, r.Reason)
		}
	}
}

// wantNoSurprise compares results with the broker after Close: a sent message is stored exactly once, and a class that means "not
// taken" is not stored.
func (b *bench) wantNoSurprise(topic string, all []*outbox.Message) {
	b.t.Helper()
	copies := b.copies(topic)
	for _, m := range all {
		switch r := b.result(m); {
		case r.Message == nil:
			b.t.Fatalf("message %s has no result after Close", m.MessageID)
		case r.Class == outbox.ClassNone && copies[m.MessageID] != 1:
			b.t.Fatalf("message %s is reported sent and stored %d times", m.MessageID, copies[m.MessageID])
		case r.Class == outbox.ClassOutage && copies[m.MessageID] != 0:
			b.t.Fatalf("message %s is reported not taken (%s) but is stored", m.MessageID, r.Reason)
		}
	}
}

// copies counts how often each message is stored, by message id.
func (b *bench) copies(topic string) map[string]int {
	b.t.Helper()
	count := map[string]int{}
	for _, s := range b.Read(b.t, topic) {
		count[s.MessageID]++
	}
	return count
}

func sendAfterClose(t *testing.T, b *bench) {
	topic := b.Topic(t)
	b.close(patience)
	b.mu.Lock()
	b.after = true
	b.mu.Unlock()
	all := b.keyed(topic, 10)
	b.sendAll(outbox.ClassOutage, all...)
}

// probe calls Probe until it returns the wanted result.
func (b *bench) probe(up bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Second)
		err := b.sink.Probe(ctx)
		reached := (err == nil) == up
		if !reached && up {
			<-ctx.Done() // failed at once: the broker is still starting
		}
		cancel()
		if reached {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("probe: want success %v, the last answer is %v", up, err)
		}
	}
}

// outageAndReturn: messages sent during the outage are published or reported as not (certainly) taken, and a caller that sends
// those again loses nothing.
func outageAndReturn(t *testing.T, b *bench) {
	if b.Stop == nil {
		t.Skip("the broker cannot be stopped")
	}
	topic := b.Topic(t)
	before, during, after := b.keyed(topic, 100), b.keyed(topic, 100), b.keyed(topic, 100)
	b.sendAll(outbox.ClassNone, before...)
	b.Stop(t)
	var once sync.Once
	start := func() { once.Do(func() { b.Start(t) }) }
	defer start()
	b.send(during...)
	b.probe(false)
	start()
	b.probe(true)
	b.send(after...)
	all := append(append(before, during...), after...)
	uncertain := b.untilSent(all)
	copies := b.copies(topic)
	for _, m := range all {
		if n := copies[m.MessageID]; n == 0 || n > 1 && !uncertain[m.MessageID] {
			t.Errorf("message %s is stored %d times (sent again after an unknown outcome: %v)", m.MessageID, n, uncertain[m.MessageID])
		}
	}
}

// untilSent sends again what failed in an outage until everything is sent. It returns the ids that were sent again although they
// may have been stored.
func (b *bench) untilSent(all []*outbox.Message) (uncertain map[string]bool) {
	b.t.Helper()
	uncertain = map[string]bool{}
	for deadline := time.Now().Add(patience); ; {
		b.settle()
		var failed []*outbox.Message
		for _, m := range all {
			switch r := b.result(m); r.Class {
			case outbox.ClassNone:
			case outbox.ClassUnknown:
				uncertain[m.MessageID] = true
				failed = append(failed, m)
			case outbox.ClassOutage:
				failed = append(failed, m)
			default:
				b.t.Fatalf("message %s: an outage came out as %s (%s)", m.MessageID, r.Class, r.Reason)
			}
		}
		if len(failed) == 0 {
			return uncertain
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%d messages still fail long after the broker came back: %s", len(failed), b.result(failed[0]).Reason)
		}
		b.resend(failed...)
	}
}

// closeDuringOutage: Close does not wait for a broker that never answers, and reports nothing as sent that is not. A sink whose
// client fails by itself after a time must have a longer one than Patience here, so that a Close which waits for it is seen.
func closeDuringOutage(t *testing.T, b *bench) {
	if b.Stop == nil {
		t.Skip("the broker cannot be stopped")
	}
	topic := b.Topic(t)
	all := b.keyed(topic, 300)
	b.send(all[:100]...)
	b.settle()
	b.Stop(t)
	defer b.Start(t)
	b.send(all[100:]...)
	b.close(time.Second) // the broker is back only after it
	b.want(outbox.ClassNone, all[:100]...)
	for _, m := range all[100:] {
		if r := b.result(m); r.Class != outbox.ClassUnknown && r.Class != outbox.ClassOutage {
			t.Fatalf("message %s: class %s (%s), want unknown or outage", m.MessageID, r.Class, r.Reason)
		}
	}
}
