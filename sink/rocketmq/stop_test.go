package rocketmq

import (
	"context"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A stop says of each message that waits for a route or behind a request without an answer that it was not sent; the one in that request
// stays uncertain.
func TestG47_CloseWithoutAnswers(t *testing.T) {
	c, s := newOrders(t)
	c.topic("orders", fakeQueues{broker: "broker-a", write: 1, perm: 6})
	send(t, s, messages("orders", "k", 1)...).want(outbox.ClassNone)
	asked := make(chan struct{}, 100)
	c.scripted("broker-a", func(request) reply { asked <- struct{}{}; return reply{swallow: true} })
	first := send(t, s, messages("orders", "k", 1)...)
	<-asked
	behind := send(t, s, messages("orders", "k", 50)...)
	c.names.freeze()
	elsewhere := send(t, s, messages("payments", "k", 3)...)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := s.Close(ctx); err == nil {
		t.Error("Close does not say that messages had no result")
	}
	t.Logf("Close took %v", time.Since(began).Round(time.Millisecond))
	first.want(outbox.ClassUnknown)
	behind.want(outbox.ClassOutage)
	elsewhere.want(outbox.ClassOutage)
}
