package redisinbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrBusy says that another copy of the message is being handled, or that its handler crashed less than Options.Processing ago.
// Do not acknowledge the message: the broker then delivers it again.
var ErrBusy = errors.New("another copy of the message is being handled")

// Options of an Inbox. The zero value has the defaults.
type Options struct {
	// Prefix of all keys; "" is "inbox:". The consumer and the message id follow.
	Prefix string
	// Processing is how long a handler may take: its context ends then, and so does the claim. 0 is a minute.
	Processing time.Duration
	// Keep is how long a message counts as handled; 0 is seven days. Take more than the broker keeps messages for.
	Keep time.Duration
}

const (
	defaultProcessing = time.Minute
	defaultKeep       = 7 * 24 * time.Hour
	// answerTime bounds the statements after a handler, which run even when its context has ended.
	answerTime = 3 * time.Second
)

// Inbox remembers what one consumer has handled.
type Inbox struct {
	client           redis.Cmdable
	prefix           string
	processing, keep time.Duration
}

// New returns the inbox of a consumer, such as "billing". Services that share a Redis take different names, and the instances of
// one service the same. client is a *redis.Client, a *redis.ClusterClient or the like; each statement concerns one key.
func New(client redis.Cmdable, consumer string, options Options) (*Inbox, error) {
	i := &Inbox{client: client, prefix: options.Prefix, processing: options.Processing, keep: options.Keep}
	if i.prefix == "" {
		i.prefix = "inbox:"
	}
	if i.processing == 0 {
		i.processing = defaultProcessing
	}
	if i.keep == 0 {
		i.keep = defaultKeep
	}
	switch {
	case client == nil:
		return nil, errors.New("redis inbox: there is no client")
	case consumer == "":
		return nil, errors.New("redis inbox: the consumer has no name")
	case i.processing < time.Millisecond || i.keep < i.processing:
		return nil, fmt.Errorf("redis inbox of %s: processing is %v and keep is %v: keep must be longer, and both above a millisecond", consumer, i.processing, i.keep)
	}
	i.prefix += consumer + ":"
	return i, nil
}

// done is the value of the mark. Claims have random values of another length.
const done = "done"

// release deletes a claim, unless it has expired and another handler holds the key.
var release = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// Once calls handle unless the message was handled before, and reports whether it did. Acknowledge the message to the broker when
// err is nil. The error of handle comes back as it is, with the claim given back, so that the next copy is handled; ErrBusy says
// that a copy is being handled. Any other error with ran says that the message was handled and that this could not be recorded.
func (i *Inbox) Once(ctx context.Context, messageID string, handle func(ctx context.Context) error) (ran bool, err error) {
	if messageID == "" {
		return false, errors.New("redis inbox: the message has no message id")
	}
	key, claim := i.prefix+messageID, rand.Text()
	// The handler's time begins before the claim's, so that it ends before it.
	working, cancel := context.WithTimeout(ctx, i.processing)
	defer cancel()
	if claimed, err := i.claim(ctx, key, claim); err != nil || !claimed {
		return false, err
	}
	returned := false
	defer func() {
		if !returned { // a panic
			_ = i.release(ctx, key, claim) // the panic is the news; the claim ends by itself
		}
	}()
	err = handle(working)
	returned = true
	if err != nil {
		return true, errors.Join(err, i.release(ctx, key, claim))
	}
	after, cancel := behind(ctx)
	defer cancel()
	// The mark is set even when another handler holds the key now: the message was handled.
	if err := i.client.Set(after, key, done, i.keep).Err(); err != nil {
		return true, fmt.Errorf("redis inbox: message %s was handled, and that could not be recorded: %w", messageID, err)
	}
	return true, nil
}

// claim takes the key; false when the message was handled before.
func (i *Inbox) claim(ctx context.Context, key, claim string) (claimed bool, err error) {
	for range 3 { // a claim may end between the two looks at it
		err := i.client.SetArgs(ctx, key, claim, redis.SetArgs{Mode: "NX", TTL: i.processing}).Err()
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, redis.Nil) {
			return false, fmt.Errorf("redis inbox: claim %s: %w", key, err)
		}
		switch value, err := i.client.Get(ctx, key).Result(); {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return false, fmt.Errorf("redis inbox: look at %s: %w", key, err)
		case value == done:
			return false, nil
		default:
			return false, ErrBusy
		}
	}
	return false, ErrBusy
}

func (i *Inbox) release(ctx context.Context, key, claim string) error {
	after, cancel := behind(ctx)
	defer cancel()
	if err := release.Run(after, i.client, []string{key}, claim).Err(); err != nil {
		return fmt.Errorf("redis inbox: give the claim %s back: %w; it ends by itself after %v", key, err, i.processing)
	}
	return nil
}

// behind is a context for what has to be said when a handler has returned, also because its context ended.
func behind(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), answerTime)
}
