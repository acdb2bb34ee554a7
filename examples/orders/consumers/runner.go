package consumers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/canal-outbox/canal-outbox/examples/orders/bus"
	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
	"github.com/canal-outbox/canal-outbox/inbox"
	"github.com/canal-outbox/canal-outbox/inbox/redisinbox"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// Topics in addition to the shop's.
const (
	DeadTopic  = "order_dead"  // letters, of all consumers
	RetryTopic = "order_retry" // letters that were sent back
)

// ErrRefused is returned by a consumer for a message that it cannot handle.
var ErrRefused = errors.New("refused")

const (
	attempts = 3
	between  = 100 * time.Millisecond // twice as long after each
)

// Environment is what the consumers share.
type Environment struct {
	DB    *sql.DB
	Redis redis.UniversalClient
	Bus   bus.Bus
	Shop  *shop.Shop
}

// consumer is one of the consumers of an order.
type consumer struct {
	name   string
	topics []string
	kinds  []string // of relevant messages; empty: all
	handle bus.Handler
}

// Run runs the consumer of that name until ctx ends.
func Run(ctx context.Context, env Environment, name string) error {
	for _, make := range []func(Environment) (consumer, error){stock, points, coupon, notification, timeout, letters} {
		c, err := make(env)
		if err != nil {
			return err
		}
		if c.name == name {
			return env.Bus.Consume(ctx, c.name, c.topics, func(ctx context.Context, m bus.Message) error { return env.take(ctx, c, m) })
		}
	}
	return fmt.Errorf("there is no consumer %q", name)
}

// letter is a message to or from the dead letters.
type letter struct {
	Consumer string      `json:"consumer"`
	Reason   string      `json:"reason"`
	Message  bus.Message `json:"message"`
}

// take handles one message: nil acknowledges it. A message with a lasting error (see away) becomes a letter after some attempts,
// so that the next ones are handled. If something is away the message is tried again.
func (env Environment) take(ctx context.Context, c consumer, m bus.Message) error {
	if m.Kind == "" && c.name != lettersName { // from the retry topic: the relay sets a kind
		var back letter
		if err := json.Unmarshal([]byte(m.Body), &back); err != nil || back.Consumer != c.name {
			return nil // another consumer's
		}
		m = back.Message
	}
	if !c.wants(m.Kind) {
		return nil
	}
	var err error
	for n := range attempts {
		if err = c.handle(ctx, m); err == nil || away(err) {
			return err
		}
		if !outbox.Wait(ctx, between<<n, nil) {
			return ctx.Err()
		}
	}
	log.Printf("%s: message %s goes to the dead letters after %d attempts: %v", c.name, m.ID, attempts, err)
	if c.name == lettersName { // it is a letter already, and stays in its topic
		return nil
	}
	return env.send(ctx, DeadTopic, letter{c.name, err.Error(), m})
}

func (c consumer) wants(kind string) bool { return len(c.kinds) == 0 || slices.Contains(c.kinds, kind) }

func (env Environment) send(ctx context.Context, topic string, l letter) error {
	body, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return env.Bus.Publish(ctx, topic, l.Message.ID, string(body))
}

// ofOrder handles messages whose body is an order. Another body is refused.
func ofOrder(handle func(ctx context.Context, m bus.Message, o shop.Order) error) bus.Handler {
	return func(ctx context.Context, m bus.Message) error {
		var o shop.Order
		err := json.Unmarshal([]byte(m.Body), &o)
		if err == nil && o.Number == "" {
			err = errors.New("it has no order_no")
		}
		if err != nil {
			return fmt.Errorf("%w: the body of message %s is no order: %w", ErrRefused, m.ID, err)
		}
		return handle(ctx, m, o)
	}
}

// onceInSQL handles a message in a transaction with the inbox's row: both are stored, or none.
func (env Environment) onceInSQL(ctx context.Context, box *inbox.Inbox, messageID string, handle func(tx *sql.Tx) error) error {
	return shop.Transact(ctx, env.DB, func(tx *sql.Tx) error {
		_, err := box.Once(ctx, tx, messageID, func(context.Context) error { return handle(tx) })
		return err
	})
}

// onceInRedis handles a message unless Redis has it as handled. It records dropped copies for the account.
func (env Environment) onceInRedis(box *redisinbox.Inbox, consumer string, handle bus.Handler) bus.Handler {
	return func(ctx context.Context, m bus.Message) error {
		ran, err := box.Once(ctx, m.ID, func(ctx context.Context) error { return handle(ctx, m) })
		if ran || err != nil {
			return err
		}
		_, err = env.DB.ExecContext(ctx, "INSERT INTO t_dropped VALUES (?, ?)", consumer, m.ID)
		return err
	}
}
