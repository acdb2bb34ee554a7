package consumers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/canal-outbox/canal-outbox/examples/orders/bus"
	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
)

const lettersName = "letters"

// letters writes messages of the dead-letter topic into a table, where people read them.
func letters(env Environment) (consumer, error) {
	return consumer{name: lettersName, topics: []string{DeadTopic}, handle: func(ctx context.Context, m bus.Message) error {
		var l letter
		if err := json.Unmarshal([]byte(m.Body), &l); err != nil {
			return fmt.Errorf("%w: this is no letter: %w", ErrRefused, err)
		}
		// A letter that arrives again after it was sent back is open again.
		_, err := env.DB.ExecContext(ctx, `INSERT INTO t_dead_letter (consumer, message_id, kind, body, reason) VALUES (?, ?, ?, ?, ?)
			ON DUPLICATE KEY UPDATE reason = VALUES(reason), state = 'open'`, l.Consumer, l.Message.ID, l.Message.Kind, l.Message.Body, l.Reason)
		return err
	}}, nil
}

// ListLetters prints the open letters.
func ListLetters(ctx context.Context, db *sql.DB, out io.Writer) error {
	open, err := openLetters(ctx, db, "")
	for _, l := range open {
		fmt.Fprintf(out, "%-13s %-34s %s\n", l.Consumer, l.Message.ID, l.Reason)
	}
	return err
}

// SendBack publishes the open letters of a consumer again, for that consumer alone, and returns how many.
func SendBack(ctx context.Context, env Environment, consumer string) (int, error) {
	open, err := openLetters(ctx, env.DB, consumer)
	if err != nil {
		return 0, err
	}
	for n, l := range open {
		// The table first: a letter that returns at once must find it updated. One that was not published stays in the list of
		// those sent back, and in the dead-letter topic.
		if err := errors.Join(setState(ctx, env.DB, l, "sent back"), env.send(ctx, RetryTopic, l)); err != nil {
			return n, errors.Join(err, setState(ctx, env.DB, l, "open"))
		}
	}
	return len(open), nil
}

// Discard closes the open letters of a message that cannot be handled.
func Discard(ctx context.Context, db *sql.DB, messageID string) error {
	_, err := db.ExecContext(ctx, "UPDATE t_dead_letter SET state = 'discarded' WHERE message_id = ? AND state = 'open'", messageID)
	return err
}

func setState(ctx context.Context, db *sql.DB, l letter, state string) error {
	_, err := db.ExecContext(ctx, "UPDATE t_dead_letter SET state = ? WHERE consumer = ? AND message_id = ?", state, l.Consumer, l.Message.ID)
	return err
}

// openLetters reads those of a consumer, or of all.
func openLetters(ctx context.Context, db *sql.DB, consumer string) ([]letter, error) {
	columns := func(l *letter) []any {
		return []any{&l.Consumer, &l.Message.ID, &l.Message.Kind, &l.Message.Body, &l.Reason}
	}
	return shop.List(ctx, db, columns, `SELECT consumer, message_id, kind, body, reason FROM t_dead_letter
		WHERE state = 'open' AND ? IN ('', consumer) ORDER BY consumer, message_id`, consumer)
}
