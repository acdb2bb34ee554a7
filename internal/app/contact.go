package app

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// contact is the first connection to the broker. A sink opens no connection before its first message, so without contact a wrong
// address, certificate or password would show only with the first row. It runs during the start and delays nothing: from the
// first message on the breaker decides whether the broker takes messages.
type contact struct {
	mu      sync.Mutex
	trouble string
}

const contactTimeout = 3 * time.Second

// contactPause is the time between two questions.
var contactPause = outbox.Backoff{Base: time.Second, Max: 10 * time.Second}

// run asks until the broker has answered once or the context ends.
func (c *contact) run(ctx context.Context, s sink.Sink, log *zap.Logger) {
	for n := 0; ; n++ {
		asking, cancel := context.WithTimeout(ctx, contactTimeout)
		err := s.Probe(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		c.note(err, log)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(contactPause.Delay(n, rand.Float64())):
		}
	}
}

// note keeps the error for status and logs it once.
func (c *contact) note(err error, log *zap.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.trouble
	c.trouble = ""
	switch {
	case err == nil && before != "":
		log.Info("the broker answers")
	case err != nil:
		c.trouble = "broker not reached yet: " + err.Error()
		if before == "" {
			log.Warn("broker not reached yet: rows wait, and it is asked again; check the address, tls and credentials under sink, "+
				"and that the broker runs", zap.Error(err))
		}
	}
}

// Trouble is why the broker has not been reached yet; "" when it was, or when it has not been asked to the end.
func (c *contact) Trouble() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble
}
