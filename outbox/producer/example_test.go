package producer_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/producer"
)

// pay marks an order as paid, and its message goes into the same transaction.
func pay(ctx context.Context, db *sql.DB, messages *producer.Table, order int) (messageID string, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback() // does nothing after the commit
	if _, err = tx.ExecContext(ctx, "UPDATE orders SET paid = 1 WHERE id = ?", order); err != nil {
		return "", err
	}
	messageID, err = messages.Insert(ctx, tx, producer.Message{
		BizType: "order_paid", Key: fmt.Sprint(order), Topic: "orders", Body: fmt.Appendf(nil, `{"order":%d}`, order),
	})
	if err != nil {
		return "", err
	}
	return messageID, tx.Commit()
}

// The business change and its message are one transaction.
func ExampleTable_Insert() {
	db := sql.OpenDB(echo{}) // prints statements; use your MySQL driver
	defer db.Close()
	messages, err := producer.New(producer.TLocalMessage, producer.Options{Table: "shop.t_local_message", Writer: "order-service"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pay(context.Background(), db, messages, 4711))
	// Output:
	// UPDATE orders SET paid = 1 WHERE id = ?
	// INSERT INTO `shop`.`t_local_message` (`biz_type`, `biz_key`, `topic`, `message_body`, `status`, `retry_count`, `gmt_create`, `gmt_modified`, `created_by`, `updated_by`) VALUES (?, ?, ?, ?, ?, 0, NOW(3), NOW(3), ?, ?)
	// COMMIT
	// order_paid:4711 <nil>
}

// Many messages go out with one statement. A message with a delay is published when it is due.
func ExampleTable_InsertAll() {
	db, ctx := sql.OpenDB(echo{}), context.Background()
	defer db.Close()
	messages, err := producer.New(producer.LocalMessageTable, producer.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// In a transaction, as above.
	ids, err := messages.InsertAll(ctx, db, []producer.Message{
		{MessageID: "order-4711-reminder", Topic: "reminders", Body: []byte("4711"), Delay: time.Hour},
		{MessageID: "order-4712-reminder", Topic: "reminders", Body: []byte("4712"), Delay: 2 * time.Hour},
	})
	fmt.Println(ids, err)
	// Output:
	// INSERT INTO `local_message_table` (`message_id`, `topic`, `content`, `next_retry_time`, `state`, `retry_count`, `create_time`, `update_time`) VALUES (?, ?, ?, NOW(3) + INTERVAL ? MICROSECOND, ?, 0, NOW(3), NOW(3)), (?, ?, ?, NOW(3) + INTERVAL ? MICROSECOND, ?, 0, NOW(3), NOW(3))
	// [order-4711-reminder order-4712-reminder] <nil>
}

// A table that differs from its preset: a word for the state, a column for the tag, ids by AUTO_INCREMENT.
func ExampleNew_options() {
	db, ctx := sql.OpenDB(echo{}), context.Background()
	defer db.Close()
	messages, err := producer.New(producer.MessageState, producer.Options{
		Pending: "待发送",
		Columns: map[producer.Role]string{producer.Tag: "message_tag", producer.ID: ""},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := messages.Insert(ctx, db, producer.Message{
		BizType: "order_paid", Key: "4711", Topic: "orders", Tag: "vip", Body: []byte(`{}`), Columns: map[string]any{"tenant": 7},
	})
	fmt.Println(id, err)

	_, err = messages.Insert(ctx, db, producer.Message{BizType: "order_paid", Key: "4711", Topic: "orders", MaxRetry: 3})
	fmt.Println(err)
	// Output:
	// INSERT INTO `local_message` (`message_type`, `message_key`, `topic`, `message_tag`, `message_body`, `state`, `retry_count`, `lock_version`, `gmt_create`, `gmt_modified`, `tenant`) VALUES (?, ?, ?, ?, ?, ?, 0, 0, NOW(3), NOW(3), ?)
	// order_paid:4711 <nil>
	// insert into local_message: message 1 of 1: max_retry is given (3), and the table has no column for it: map one in Options.Columns, or leave it out; nothing was inserted
}

// echo is a database that prints what it receives.
type echo struct{}

func (e echo) Connect(context.Context) (driver.Conn, error) { return e, nil }
func (e echo) Driver() driver.Driver                        { return e }
func (e echo) Open(string) (driver.Conn, error)             { return e, nil }
func (e echo) Prepare(string) (driver.Stmt, error)          { return nil, io.EOF }
func (e echo) Close() error                                 { return nil }
func (e echo) Begin() (driver.Tx, error)                    { return e, nil }
func (e echo) Rollback() error                              { return nil }

func (e echo) Commit() error {
	fmt.Println("COMMIT")
	return nil
}

func (e echo) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	fmt.Println(query)
	return driver.RowsAffected(1), nil
}
