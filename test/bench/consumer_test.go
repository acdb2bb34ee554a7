package bench

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// consumer records when the messages of a Kafka topic reach a consumer. The broker delivers a message only after it has
// acknowledged it.
type consumer struct {
	mu sync.Mutex
	at map[string]time.Time // by relay.Row.Key
}

// idOfHeader returns the part of a header's value after the last colon, which may be a JSON text.
func idOfHeader(name string) func(*kgo.Record) string {
	return func(r *kgo.Record) string {
		for _, h := range r.Headers {
			if h.Key == name {
				return string(bytes.Trim(h.Value[bytes.LastIndexByte(h.Value, ':')+1:], `"`))
			}
		}
		return ""
	}
}

// consume reads from now on, until the benchmark ends. id returns the row's key of a message.
func consume(b testing.TB, addr, topic string, id func(*kgo.Record) string, more ...kgo.Opt) *consumer {
	b.Helper()
	more = append(more, kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	client, err := kgo.NewClient(more...)
	testkit.Must(b, err)
	c := &consumer{at: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			now := time.Now()
			c.mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) { c.at[id(r)] = now })
			c.mu.Unlock()
		}
	}()
	b.Cleanup(func() {
		cancel()
		<-done
		client.Close()
	})
	return c
}

// after returns the time from the return of each INSERT to the arrival of the row, in the order of the rows. A message may arrive
// first: the server sends a transaction to readers before it answers the application.
func (c *consumer) after(b testing.TB, rows []relay.Row, committed []time.Time) []time.Duration {
	b.Helper()
	arrived := func(i int) (time.Time, bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		at, ok := c.at[rows[i].Key]
		return at, ok
	}
	took := make([]time.Duration, len(rows))
	for i := range rows {
		var at time.Time
		testkit.WaitFor(b, time.Minute, "a message to arrive", func() (ok bool) { at, ok = arrived(i); return ok })
		took[i] = max(0, at.Sub(committed[i]))
	}
	return took
}

// forget clears the arrivals, and seen returns the number of rows that have arrived since.
func (c *consumer) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.at)
}

func (c *consumer) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.at)
}
