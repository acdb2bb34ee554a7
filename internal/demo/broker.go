package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
)

// broker is where the relay publishes to, with the demo's own consumer behind it.
type broker interface {
	// Title and Address name it for people.
	Title() string
	Address() string
	// Sink is the sink section of the relay's configuration, on one line.
	Sink() string
	Topic() string

	// Stop makes the broker unreachable for the relay, Start reachable again. A broker that was given answers
	// errNotOurs: clients are told its own address, so nothing can be put in front of it.
	Stop() error
	Start() error

	// Follow delivers everything the topic gets, from its first record on, until ctx ends, which is no error.
	Follow(ctx context.Context, deliver func([]arrival)) error
	// CatchUp returns when Follow has delivered what the topic held at the time of the call.
	CatchUp(ctx context.Context) error

	// Close removes the topic and ends what the demo has started.
	Close(ctx context.Context) error
}

var errNotOurs = errors.New("the broker is not the demo's own")

// partitions of the demo's topic.
const partitions = 4

// uniqueTopic names a topic on a broker that others use too.
func uniqueTopic() string {
	suffix := make([]byte, 4)
	_, _ = rand.Read(suffix) // never fails
	return "canal-outbox-demo-" + hex.EncodeToString(suffix)
}
