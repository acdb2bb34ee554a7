package relay

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Contact is the first connection to the broker. A sink opens no connection before its first message, so without Contact a wrong
// address, certificate or password would show only with the first row. It runs during the start and delays nothing: from the
// first message on the breaker decides whether the broker takes messages.
type Contact struct {
	mu      sync.Mutex
	trouble string
}

const contactTimeout = 3 * time.Second

// contactPauses are the waits between two probes.
var contactPauses = outbox.Backoff{Base: time.Second, Max: 10 * time.Second}

// Run probes the broker until it has answered once or the context ends.
func (c *Contact) Run(ctx context.Context, s sink.Sink, log *zap.Logger) {
	for n := 0; ; n++ {
		probing, cancel := context.WithTimeout(ctx, contactTimeout)
		err := s.Probe(probing)
		cancel()
		if ctx.Err() != nil {
			return
		}
		c.note(err, log)
		if err == nil || !outbox.Wait(ctx, contactPauses.Delay(n, rand.Float64()), nil) {
			return
		}
	}
}

// note keeps the error for status and logs it once.
func (c *Contact) note(err error, log *zap.Logger) {
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

// Trouble is why the broker has not been reached yet; "" when it was, or when no probe has ended.
func (c *Contact) Trouble() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble
}
