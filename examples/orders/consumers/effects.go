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
	once := env.onceInSQL(box, moveStock)
	return consumer{name: "stock", topics: events, handle: func(ctx context.Context, m bus.Message) error {
		o, err := order(m)
		if err == nil {
			err = once(ctx, m)
		}
		if err != nil || m.Kind != shop.Closed {
			return err
		}
		// After the commit, and for a copy too: the process may have died between the two. The script may be repeated.
		return env.Shop.Stock.Release(ctx, o.Product, o.Number)
	}}, err
}

func moveStock(ctx context.Context, tx *sql.Tx, m bus.Message) error {
	o, err := order(m)
	if err != nil {
		return err
	}
	set, known := moves[m.Kind]
	if !known {
		return fmt.Errorf("%w: message %s has the unknown kind %q", ErrRefused, m.ID, m.Kind)
	}
	args := []any{o.Quantity, o.Product}
	if m.Kind == shop.Settled {
		args = append([]any{o.Quantity}, args...)
	}
	_, err = tx.ExecContext(ctx, "UPDATE t_stock SET "+set+", version = version + 1 WHERE product_id = ?", args...)
	return err
}

// redisBox returns the inbox of a consumer. Work of a killed process may be started again after two seconds.
func redisBox(env Environment, consumer string) (*redisinbox.Inbox, error) {
	return redisinbox.New(env.Redis, consumer, redisinbox.Options{Processing: 2 * time.Second})
}

// points grants a point for each unit of money that was paid.
func points(env Environment) (consumer, error) {
	box, err := redisBox(env, "points")
	return consumer{"points", events, []string{shop.Settled}, env.onceInRedis(box, "points", func(ctx context.Context, m bus.Message) error {
		o, err := order(m)
		if err != nil {
			return err
		}
		_, err = env.DB.ExecContext(ctx, "INSERT INTO t_points VALUES (?, ?, ?)", o.Number, o.User, o.Amount/100)
		return unlessThere(err)
	})}, err
}

// coupon gives a coupon of the campaign for each paid order.
func coupon(env Environment) (consumer, error) {
	box, err := redisBox(env, "coupon")
	return consumer{"coupon", events, []string{shop.Settled}, env.onceInRedis(box, "coupon", func(ctx context.Context, m bus.Message) error {
		o, err := order(m)
		if err != nil {
			return err
		}
		var cents int
		err = env.DB.QueryRowContext(ctx, "SELECT cents FROM t_campaign WHERE id = 1").Scan(&cents)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: there is no campaign 1", ErrRefused)
		}
		if err != nil {
			return err
		}
		_, err = env.DB.ExecContext(ctx, "INSERT INTO t_coupon (order_no, user_id, cents) VALUES (?, ?, ?)", o.Number, o.User, cents)
		return unlessThere(err)
	})}, err
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
	box, err := redisBox(env, "notification")
	kinds := []string{shop.Settled, shop.Closed}
	return consumer{"notification", events, kinds, env.onceInRedis(box, "notification", func(ctx context.Context, m bus.Message) error {
		if _, err := order(m); err != nil {
			return err
		}
		_, err := env.DB.ExecContext(ctx, "INSERT INTO t_notification (message_id) VALUES (?)", m.ID)
		return err
	})}, err
}

// timeout closes orders that are not paid when their message comes. It needs no inbox: the order's status is sufficient.
func timeout(env Environment) (consumer, error) {
	return consumer{name: "timeout", topics: []string{shop.TimeoutTopic}, handle: func(ctx context.Context, m bus.Message) error {
		o, err := order(m)
		if err == nil {
			_, err = env.Shop.Close(ctx, o)
		}
		return err
	}}, nil
}
