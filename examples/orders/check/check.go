// Package check is the shop's housekeeping, every hour in a shop and every few seconds in the example: it compares the stock in
// Redis with the database and stores it there, recreates a missing one, releases what a dead process reserved, and closes unpaid
// orders whose delayed message did not come.
//
// Guarantees: of several processes one works (a named lock of the database). A stock is created only where there is none, and
// only from written orders: the epoch is raised first, and a request that reserved before does not place an order. The package
// owns no goroutine.
package check

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// tolerance is the difference that orders in progress may cause.
const tolerance = 10

// Check checks all products.
type Check struct {
	Shop  *shop.Shop
	Every time.Duration
	// Abandoned is the age of a request at which its process counts as dead.
	Abandoned time.Duration
	// Overdue is the age at which an unpaid order is closed without its delayed message. It is longer than the message takes, so
	// that it normally has nothing to do.
	Overdue time.Duration
	Say     func(format string, args ...any)
	// Alert is called with problems for a person; nil: Say.
	Alert func(ctx context.Context, text string) error

	alerted map[int]bool // products with an alert whose number is still wrong
}

// Run checks until ctx ends. It logs failures and retries them the next time.
func (c *Check) Run(ctx context.Context) error {
	for {
		if err := c.Round(ctx); err != nil && ctx.Err() == nil {
			c.Say("the check failed: %v", err)
		}
		if !outbox.Wait(ctx, c.Every, nil) {
			return nil
		}
	}
}

// Round checks once, under the lock: it belongs to the connection and ends with it. A product or an order that cannot be checked
// does not affect the others.
func (c *Check) Round(ctx context.Context) error {
	conn, err := c.Shop.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var locked bool
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('orders-check', 0)").Scan(&locked); err != nil || !locked {
		return err
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK('orders-check')") }()
	products, err := Products(ctx, c.Shop.DB)
	for _, product := range products {
		err = errors.Join(err, c.product(ctx, product))
	}
	return errors.Join(err, c.closeOverdue(ctx))
}

// Products lists the shop's products.
func Products(ctx context.Context, db *sql.DB) ([]int, error) {
	return shop.List(ctx, db, func(id *int) []any { return []any{id} }, "SELECT product_id FROM t_stock ORDER BY product_id")
}

func (c *Check) product(ctx context.Context, product int) error {
	inRedis, err := c.Shop.Stock.Available(ctx, product)
	if errors.Is(err, shop.ErrMissing) {
		return c.restore(ctx, product)
	}
	if err != nil {
		return err
	}
	abandoned, err := c.Shop.Stock.Pending(ctx, product, c.Abandoned)
	if err != nil {
		return err
	}
	for _, token := range abandoned {
		if err := c.settle(ctx, product, token); err != nil {
			return err
		}
	}
	inDatabase, err := Available(ctx, c.Shop.DB, product)
	if err != nil {
		return err
	}
	if difference := inRedis - inDatabase; max(difference, -difference) > tolerance {
		return c.alert(ctx, product, inRedis, inDatabase)
	}
	delete(c.alerted, product)
	return c.flush(ctx, product, inRedis)
}

// alert raises an alert about a product: once until its number is right again. A failed alert is raised again the next time.
func (c *Check) alert(ctx context.Context, product, inRedis, inDatabase int) error {
	if c.alerted[product] {
		return nil
	}
	text := fmt.Sprintf("product %d has %d in Redis and %d in the database", product, inRedis, inDatabase)
	c.Say("ALERT: %s", text)
	if c.Alert != nil {
		if err := c.Alert(ctx, text); err != nil {
			return fmt.Errorf("raise an alert: %w", err)
		}
	}
	if c.alerted == nil {
		c.alerted = map[int]bool{}
	}
	c.alerted[product] = true
	return nil
}

// page is the number of orders read at a time.
const page = 500

// closeOverdue closes orders that are still unpaid long after their delayed message was due: it may be FAILED, deleted, or in the
// dead letters. The UPDATE of Close decides, as it does for the message, so both may come. An order that cannot be closed is
// tried again the next time; the others are closed.
func (c *Check) closeOverdue(ctx context.Context) error {
	var errs []error
	for last := ""; ; {
		orders, err := c.overdue(ctx, last)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, o := range orders {
			closed, err := c.Shop.Close(ctx, o)
			if err != nil {
				errs = append(errs, fmt.Errorf("close the order %s: %w", o.Number, err))
			}
			if closed {
				c.Say("order %s was unpaid for longer than %v, and no message closed it: closed", o.Number, c.Overdue)
			}
			last = o.Number
		}
		if len(orders) < page {
			return errors.Join(errs...)
		}
	}
}

// overdue reads a page of unpaid orders after a number.
func (c *Check) overdue(ctx context.Context, last string) ([]shop.Order, error) {
	columns := func(o *shop.Order) []any {
		return []any{&o.Number, &o.User, &o.Product, &o.Quantity, &o.Amount, &o.Coupon}
	}
	return shop.List(ctx, c.Shop.DB, columns, `SELECT order_no, user_id, product_id, quantity, amount, COALESCE(coupon, '') FROM t_order
		WHERE status = ? AND order_no > ? AND created_at < NOW(3) - INTERVAL ? MICROSECOND ORDER BY order_no LIMIT ?`,
		shop.Unpaid, last, c.Overdue.Microseconds(), page)
}

// flush writes Redis' value to the database. A number that raised an alert is not written.
func (c *Check) flush(ctx context.Context, product, available int) error {
	_, err := c.Shop.DB.ExecContext(ctx, `INSERT INTO t_stock_flush VALUES (?, ?, NOW(3))
		ON DUPLICATE KEY UPDATE available = VALUES(available), flushed_at = VALUES(flushed_at)`, product, available)
	if err != nil {
		return fmt.Errorf("flush the stock of product %d: %w", product, err)
	}
	return nil
}

// settle determines the outcome of a request. It takes a free number, so that no order can follow.
func (c *Check) settle(ctx context.Context, product int, token string) error {
	switch err := c.Shop.Void(ctx, product, token); {
	case shop.IsDuplicate(err):
		var quantity int
		err := c.Shop.DB.QueryRowContext(ctx, "SELECT quantity FROM t_order WHERE order_no = ?", token).Scan(&quantity)
		if err != nil {
			return err
		}
		if quantity > 0 {
			return c.Shop.Stock.Placed(ctx, product, token)
		} // closed by a check that died
	case err != nil:
		return err
	}
	return c.Shop.Stock.Release(ctx, product, token)
}

// Available is the stock by the orders, which are ahead of t_stock by the messages in flight.
func Available(ctx context.Context, db shop.Querier, product int) (n int, err error) {
	err = db.QueryRowContext(ctx, `SELECT total - (SELECT COALESCE(SUM(quantity), 0) FROM t_order WHERE product_id = ? AND status IN (?, ?))
		FROM t_stock WHERE product_id = ?`, product, shop.Unpaid, shop.Paid, product).Scan(&n)
	return n, err
}

// restore recreates the stock of a product from its orders.
func (c *Check) restore(ctx context.Context, product int) error {
	var available, epoch int
	var orders []shop.Reservation
	err := shop.Transact(ctx, c.Shop.DB, func(tx *sql.Tx) (err error) {
		// Waits for orders with the old epoch, and lets no other be written: what is read from here on is complete.
		if _, err = tx.ExecContext(ctx, "UPDATE t_stock_epoch SET epoch = epoch + 1 WHERE product_id = ?", product); err != nil {
			return err
		}
		if err = tx.QueryRowContext(ctx, "SELECT epoch FROM t_stock_epoch WHERE product_id = ?", product).Scan(&epoch); err != nil {
			return err
		}
		if available, err = Available(ctx, tx, product); err != nil {
			return err
		}
		orders, err = reservations(ctx, tx, product)
		return err
	})
	if err == nil {
		err = c.Shop.Stock.Restore(ctx, product, available, epoch, orders)
	}
	if err != nil {
		return fmt.Errorf("make the stock of product %d: %w", product, err)
	}
	c.Say("the stock of product %d was missing in Redis: recreated from the orders, %d available, epoch %d", product, available, epoch)
	return nil
}

// reservations lists the unpaid orders of a day: their reservations are released once, now or later.
func reservations(ctx context.Context, tx *sql.Tx, product int) ([]shop.Reservation, error) {
	columns := func(r *shop.Reservation) []any { return []any{&r.Token, &r.Epoch, &r.Quantity, &r.Released} }
	return shop.List(ctx, tx, columns, `SELECT order_no, epoch, quantity, status = ? FROM t_order
		WHERE product_id = ? AND status IN (?, ?) AND created_at > NOW(3) - INTERVAL 1 DAY`, shop.Cancelled, product, shop.Unpaid, shop.Cancelled)
}
