package redisinbox_test

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/canal-outbox/canal-outbox/inbox/redisinbox"
)

// The handler has a minute and its context ends then. The message counts as handled for seven days.
func ExampleInbox_Once() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer client.Close()
	mail, err := redisinbox.New(client, "mail", redisinbox.Options{Processing: time.Minute})
	if err != nil {
		return
	}
	_, err = mail.Once(context.Background(), "order_paid:4711", func(ctx context.Context) error {
		return nil // send the mail
	})
	switch {
	case errors.Is(err, redisinbox.ErrBusy): // a copy is being handled: do not acknowledge the message
	case err != nil: // the handler failed, or Redis cannot be reached: do not acknowledge the message
	default: // handled, now or before: acknowledge it
	}
}
