package consumers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/examples/orders/bus"
	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
	"github.com/canal-outbox/canal-outbox/inbox"
	"github.com/canal-outbox/canal-outbox/inbox/redisinbox"
)

// events are the topics of the consumers of orders.
var events = []string{shop.Topic, RetryTopic}

// moves are the changes of a product's stock by a message; ? is the quantity.
var moves = map[string]string{
	shop.Created: "locked = locked + ?",
	shop.Settled: "locked = locked - ?, sold = sold + ?",
	shop.Closed:  "locked = locked - ?",
}

// stock maintains t_stock, and returns the reservation of a cancelled order to Redis.
func stock(env Environment) (consumer, error) {
	box, err := inbox.New("stock", "")
	return consumer{name: "stock", topics: events, handle: ofOrder(func(ctx context.Context, m bus.Message, o shop.Order) error {
		err := env.onceInSQL(ctx, box, m.ID, func(tx *sql.Tx) error { return moveStock(ctx, tx, m, o) })
		if err != nil || m.Kind != shop.Closed {
			return err
		}
		// After the commit, and for a copy too: the process may have died between the two. The script may be repeated.
		return env.Shop.Stock.Release(ctx, o.Product, o.Number)
	})}, err
}

func moveStock(ctx context.Context, tx *sql.Tx, m bus.Message, o shop.Order) error {
	set, known := moves[m.Kind]
	if !known {
		return fmt.Errorf("%w: message %s has the unknown kind %q", ErrRefused, m.ID, m.Kind)
	}
	args := []any{o.Quantity, o.Product}
	if m.Kind == shop.Settled {
		args = append([]any{o.Quantity}, args...)
	}
	_, err := tx.ExecContext(ctx, "UPDATE t_stock SET "+set+", version = version + 1 WHERE product_id = ?", args...)
	return err
}

// inRedis returns a consumer of orders whose inbox is in Redis. Work of a killed process may be started again after two seconds.
func (env Environment) inRedis(name string, handle func(ctx context.Context, m bus.Message, o shop.Order) error, kinds ...string) (consumer, error) {
	box, err := redisinbox.New(env.Redis, name, redisinbox.Options{Processing: 2 * time.Second})
	return consumer{name, events, kinds, env.onceInRedis(box, name, ofOrder(handle))}, err
}

// points grants a point for each unit of money that was paid.
func points(env Environment) (consumer, error) {
	return env.inRedis("points", func(ctx context.Context, _ bus.Message, o shop.Order) error {
		_, err := env.DB.ExecContext(ctx, "INSERT INTO t_points VALUES (?, ?, ?)", o.Number, o.User, o.Amount/100)
		return unlessThere(err)
	}, shop.Settled)
}

// coupon gives a coupon of the campaign for each paid order.
func coupon(env Environment) (consumer, error) {
	return env.inRedis("coupon", func(ctx context.Context, _ bus.Message, o shop.Order) error {
		var cents int
		err := env.DB.QueryRowContext(ctx, "SELECT cents FROM t_campaign WHERE id = 1").Scan(&cents)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: there is no campaign 1", ErrRefused)
		}
		if err != nil {
			return err
		}
		_, err = env.DB.ExecContext(ctx, "INSERT INTO t_coupon (order_no, user_id, cents) VALUES (?, ?, ?)", o.Number, o.User, cents)
		return unlessThere(err)
	}, shop.Settled)
}

// unlessThere treats a row that exists as done.
func unlessThere(err error) error {
	if shop.IsDuplicate(err) {
		return nil
	}
	return err
}

// notification notifies the customer that an order is paid or cancelled: here, by a row.
func notification(env Environment) (consumer, error) {
	return env.inRedis("notification", func(ctx context.Context, m bus.Message, _ shop.Order) error {
		_, err := env.DB.ExecContext(ctx, "INSERT INTO t_notification (message_id) VALUES (?)", m.ID)
		return err
	}, shop.Settled, shop.Closed)
}

// timeout closes orders that are not paid when their message comes. It needs no inbox: the order's status is sufficient.
func timeout(env Environment) (consumer, error) {
	return consumer{name: "timeout", topics: []string{shop.TimeoutTopic}, handle: ofOrder(func(ctx context.Context, _ bus.Message, o shop.Order) error {
		_, err := env.Shop.Close(ctx, o)
		return err
	})}, nil
}
