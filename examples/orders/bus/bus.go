// Package bus is the consumers' access to a broker, Kafka or RocketMQ: messages with the id that the relay gives them, and a
// topic to publish to.
//
// Guarantee: Consume acknowledges a message only when its handler has returned nil, so a message whose process dies comes again.
// Messages of one key come one after the other on Kafka; on RocketMQ they may come at the same time. A Bus may be used from many
// goroutines; Close ends those that it owns.
package bus

import (
	"context"
	"log"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Message is a message as a consumer gets it.
type Message struct {
	ID   string `json:"id"` // the message id: the same in every copy
	Kind string `json:"kind"`
	Body string `json:"body"`
}

// Handler handles a message. After an error it is called with the same message again, after a pause.
type Handler func(ctx context.Context, m Message) error

// Bus is a connection to the broker.
type Bus interface {
	// Consume calls handle with each message of the topics until ctx ends, which is not an error. Processes of one group share
	// the messages.
	Consume(ctx context.Context, group string, topics []string, handle Handler) error
	// Publish returns when the broker has the message.
	Publish(ctx context.Context, topic, key, body string) error
	Close()
}

// Address selects the broker: one of the two is set.
type Address struct {
	Kafka    string // host:port of a broker
	RocketMQ string // host:port of a name server
}

// Open connects. The broker may be away: calls wait for it.
func (a Address) Open() (Bus, error) {
	if a.RocketMQ != "" {
		return openRocketMQ(a.RocketMQ)
	}
	return openKafka(a.Kafka)
}

// saying is the interval of log lines about a waiting message.
const saying = 10 * time.Second

// insist calls the handler until it returns nil or ctx ends. It logs the waiting message and its error at once and then every ten
// seconds. A handler that always returns an error stops its consumer for good: it must put such a message aside itself.
func insist(ctx context.Context, group string, handle Handler, m Message) error {
	var said time.Time
	attempt := 1
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := handle(ctx, m)
		if err == nil {
			return nil
		}
		if now := time.Now(); now.Sub(said) >= saying && ctx.Err() == nil {
			log.Printf("group %s: message %s waits, and those behind it: attempt %d: %v", group, m.ID, attempt, err)
			said = now
		}
		attempt++
		if !outbox.Wait(ctx, pause, nil) {
			return err
		}
	}
}
