package inbox_test

import (
	"context"
	"database/sql"
	"time"

	"github.com/canal-outbox/canal-outbox/inbox"
)

// consume handles one message of the broker: nil acknowledges it, an error has it delivered again.
func consume(ctx context.Context, db *sql.DB, billing *inbox.Inbox, messageID string, body []byte) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	_, err = billing.Once(ctx, tx, messageID, func(ctx context.Context) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO invoice (body) VALUES (?)", string(body))
		return err
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

// The consumer's changes and the record of the message are one transaction. On Kafka the message id is the header message_id,
// on RocketMQ the message's unique key.
func ExampleInbox_Once() {
	ctx, db := context.Background(), &sql.DB{} // sql.Open("mysql", ...)
	billing, err := inbox.New("billing", "shop.inbox_message")
	if err != nil {
		return
	}
	for _, message := range []struct{ id, body string }{{"order_paid:4711", `{"order":4711}`}} { // from the broker
		if err := consume(ctx, db, billing, message.id, []byte(message.body)); err != nil {
			continue // do not acknowledge it
		}
	}
	// Once a day, from one of the instances.
	_, _ = billing.RemoveOlder(ctx, db, 7*24*time.Hour)
}
