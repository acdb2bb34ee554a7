package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The columns take no more. Longer values are refused here: a server without strict mode would cut them, and two message ids
// would become one.
const (
	maxConsumer  = 64  // characters
	maxMessageID = 512 // bytes
)

// batch is how many rows one statement removes. So few rows are locked for a short time only, and no other transaction waits
// long for them.
const batch = 500

// Inbox remembers what one consumer has handled.
type Inbox struct {
	consumer             string
	insert, undo, remove string
}

// New returns the inbox of a consumer, such as "billing". Services that share a table take different names, and the instances of
// one service the same. table is its name, or schema.table; "" is inbox_message.
func New(consumer, table string) (*Inbox, error) {
	if consumer == "" || utf8.RuneCountInString(consumer) > maxConsumer || !utf8.ValidString(consumer) {
		return nil, fmt.Errorf("inbox: consumer %q must have 1 to %d characters", consumer, maxConsumer)
	}
	if table == "" {
		table = "inbox_message"
	}
	var name []string
	for _, part := range strings.SplitN(table, ".", 2) {
		if part == "" || strings.ContainsRune(part, 0) {
			return nil, fmt.Errorf("inbox: %q is no name of a table", table)
		}
		name = append(name, "`"+strings.ReplaceAll(part, "`", "``")+"`")
	}
	quoted := strings.Join(name, ".")
	return &Inbox{
		consumer: consumer,
		// The update changes the row, so that 2 rows are counted for it, also where the driver asks the server for found rows
		// (with an update that changes nothing both would count 1). INSERT IGNORE would hide other errors.
		insert: "INSERT INTO " + quoted + " (consumer, message_id, created_at) VALUES (?, ?, UTC_TIMESTAMP(3)) " +
			"ON DUPLICATE KEY UPDATE copies = copies + 1",
		undo: "DELETE FROM " + quoted + " WHERE consumer = ? AND message_id = ?",
		remove: fmt.Sprintf("DELETE FROM "+quoted+" WHERE consumer = ? AND created_at < UTC_TIMESTAMP(3) - INTERVAL ? SECOND "+
			"ORDER BY created_at LIMIT %d", batch),
	}, nil
}

// Execer is a *sql.Tx, or whatever passes statements on to one.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Once calls handle unless the message was handled before, and reports whether it did. Begin the transaction with it, make the
// changes of handle in the same transaction, commit when err is nil, and only then acknowledge the message to the broker. On
// any error roll back and let the broker deliver the message again.
//
// While another transaction handles the same message Once waits for its end, for innodb_lock_wait_timeout at most. After its
// commit the message was handled. After its rollback handle is called in one of those that waited; the others may get the
// server's deadlock error (1213), and find the message handled when they come again.
func (i *Inbox) Once(ctx context.Context, tx Execer, messageID string, handle func(ctx context.Context) error) (ran bool, err error) {
	if messageID == "" || len(messageID) > maxMessageID {
		return false, fmt.Errorf("inbox of %s: message id %q must have 1 to %d bytes", i.consumer, messageID, maxMessageID)
	}
	result, err := tx.ExecContext(ctx, i.insert, i.consumer, messageID)
	if err != nil {
		return false, fmt.Errorf("inbox of %s: message %s: %w", i.consumer, messageID, err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("inbox of %s: message %s: %w", i.consumer, messageID, err)
	}
	if rows != 1 {
		return false, nil
	}
	if err := handle(ctx); err != nil {
		return true, errors.Join(err, i.forget(ctx, tx, messageID))
	}
	return true, nil
}

// forget takes the row back, for callers that commit in spite of the error. A transaction that has ended has no row.
func (i *Inbox) forget(ctx context.Context, tx Execer, messageID string) error {
	_, err := tx.ExecContext(context.WithoutCancel(ctx), i.undo, i.consumer, messageID)
	if err != nil && !errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("inbox of %s: roll back: message %s would count as handled: %w", i.consumer, messageID, err)
	}
	return nil
}

// RemoveOlder removes the rows of messages that were handled longer ago than age, a few hundred with each statement, and returns
// how many. A copy that comes after that is handled again: take an age that no broker keeps messages for, such as seven days.
func (i *Inbox) RemoveOlder(ctx context.Context, db *sql.DB, age time.Duration) (removed int64, err error) {
	if age < time.Second {
		return 0, fmt.Errorf("inbox of %s: remove rows older than %v: every copy would be handled again", i.consumer, age)
	}
	for {
		result, err := db.ExecContext(ctx, i.remove, i.consumer, int64(age/time.Second))
		if err != nil {
			return removed, fmt.Errorf("inbox of %s: remove old rows: %w", i.consumer, err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return removed, fmt.Errorf("inbox of %s: remove old rows: %w", i.consumer, err)
		}
		if removed += n; n < batch {
			return removed, nil
		}
	}
}
