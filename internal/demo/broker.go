package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
)

// broker is where the relay publishes to, with the demo's own consumer.
type broker interface {
	// Title and Address describe it for people.
	Title() string
	Address() string
	// Sink is the sink section of the relay's configuration, on one line.
	Sink() string
	Topic() string

	// Stop makes the broker unreachable for the relay, Start makes it reachable again. An external broker returns errNotOurs:
	// clients get its own address, so no proxy can be put in front of it.
	Stop() error
	Start() error

	// Follow delivers all records of the topic, from the first on, until ctx ends, which is not an error.
	Follow(ctx context.Context, deliver func([]arrival)) error
	// CatchUp returns when Follow has delivered the records that the topic had at the time of the call.
	CatchUp(ctx context.Context) error

	// Close removes the topic and stops what the demo has started.
	Close(ctx context.Context) error
}

var errNotOurs = errors.New("the broker is not the demo's own")

// partitions of the demo's topic.
const partitions = 4

// uniqueTopic returns a topic name for a broker with other users.
func uniqueTopic() string {
	suffix := make([]byte, 4)
	_, _ = rand.Read(suffix) // never fails
	return "canal-outbox-demo-" + hex.EncodeToString(suffix)
}
