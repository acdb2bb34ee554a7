package shop

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/producer"
)

// The topics and the kinds of messages.
const (
	Topic        = "order_event"   // created, paid, cancelled
	TimeoutTopic = "order_timeout" // comes when the time for the payment is over

	Created = "order_created"
	Settled = "order_paid"
	Closed  = "order_cancelled"
	Timeout = "order_timeout"
)

// Order is a row of t_order, and the body of each message.
type Order struct {
	Number   string `json:"order_no"`
	User     int    `json:"user"`
	Product  int    `json:"product"`
	Quantity int    `json:"quantity"`
	Amount   int    `json:"amount"`           // cents
	Coupon   string `json:"coupon,omitempty"` // the order that it was granted for; it is redeemed when this order is placed
}

// Shop is the service.
type Shop struct {
	DB    *sql.DB
	Stock Stock
	// PayWithin is how long an order waits for its payment.
	PayWithin time.Duration

	outbox *producer.Table
}

// New returns the service.
func New(db *sql.DB, stock Stock, payWithin time.Duration) (*Shop, error) {
	outbox, err := producer.New(producer.OrderChain, producer.Options{})
	if err != nil {
		return nil, err
	}
	return &Shop{db, stock, payWithin, outbox}, nil
}

// transactionTime bounds a transaction of the shop.
const transactionTime = 5 * time.Second

// errLost reports that Redis was emptied between the reservation and the order.
var errLost = errors.New("the reservation was lost with the Redis that held it")

// Place reserves and writes an order; its number is the token of the request. ErrSoldOut, ErrMissing, ErrReleased and ErrCoupon
// mean that there is no order. After any other error there may be one: repeat the request, or leave it to the check.
func (s *Shop) Place(ctx context.Context, o Order) error {
	epoch, err := s.Stock.Reserve(ctx, o.Product, o.Quantity, o.Number)
	if err != nil {
		return err
	}
	write, cancel := context.WithTimeout(ctx, transactionTime)
	defer cancel()
	err = s.write(write, o, epoch)
	switch {
	case err == nil:
		return s.Stock.Placed(ctx, o.Product, o.Number)
	case IsDuplicate(err):
		return s.repeated(ctx, o, epoch)
	case errors.Is(err, errRolledBack):
		return errors.Join(err, s.Stock.Release(context.WithoutCancel(ctx), o.Product, o.Number))
	}
	return err // the outcome of the commit is unknown: the check looks for the order
}

// repeated answers a request whose number is taken. The order owns the reservation, unless the Redis with the order's reservation
// was lost: then the request has reserved a second time.
func (s *Shop) repeated(ctx context.Context, o Order, epoch int) error {
	var quantity, first int
	err := s.DB.QueryRowContext(ctx, "SELECT quantity, epoch FROM t_order WHERE order_no = ?", o.Number).Scan(&quantity, &first)
	switch {
	case err != nil:
		return err
	case first == epoch:
		return s.Stock.Placed(ctx, o.Product, o.Number)
	}
	if err = s.Stock.Release(ctx, o.Product, o.Number); err == nil && quantity == 0 {
		err = ErrReleased
	}
	return err
}

// errRolledBack reports that a transaction was ended before its commit.
var errRolledBack = errors.New("no order was written")

// write writes the order with its messages. The lock on the epoch is shared: orders do not wait for each other, and the restore
// of a lost stock waits for them before it counts.
func (s *Shop) write(ctx context.Context, o Order, epoch int) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return errors.Join(errRolledBack, err)
	}
	if err := s.insert(ctx, tx, o, epoch); err != nil {
		if IsDuplicate(err) {
			return errors.Join(err, tx.Rollback())
		}
		_ = tx.Rollback() // without a commit there is no order, whether the rollback arrives or not
		return errors.Join(errRolledBack, err)
	}
	return tx.Commit()
}

func (s *Shop) insert(ctx context.Context, tx *sql.Tx, o Order, epoch int) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO t_order (order_no, user_id, product_id, quantity, amount, coupon, epoch) VALUES (?, ?, ?, ?, ?, NULLIF(?, ''), ?)",
		o.Number, o.User, o.Product, o.Quantity, o.Amount, o.Coupon, epoch)
	if err != nil {
		return err
	}
	if err := redeem(ctx, tx, o); err != nil {
		return err
	}
	var now int
	err = tx.QueryRowContext(ctx, "SELECT epoch FROM t_stock_epoch WHERE product_id = ? LOCK IN SHARE MODE", o.Product).Scan(&now)
	if err == nil && now != epoch {
		err = errLost
	}
	if err != nil {
		return err
	}
	if err := s.Tell(ctx, tx, o, Created, Topic, 0); err != nil {
		return err
	}
	return s.Tell(ctx, tx, o, Timeout, TimeoutTopic, s.PayWithin)
}

// ErrCoupon reports that the coupon of an order is not the customer's, or was redeemed.
var ErrCoupon = errors.New("there is no such coupon, or another order has redeemed it")

// redeem redeems the coupon of an order in the transaction that writes the order: of two orders with one coupon, one is placed.
func redeem(ctx context.Context, tx *sql.Tx, o Order) error {
	if o.Coupon == "" {
		return nil
	}
	result, err := tx.ExecContext(ctx, "UPDATE t_coupon SET redeemed_by = ? WHERE order_no = ? AND user_id = ? AND redeemed_by IS NULL", o.Number, o.Coupon, o.User)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(ErrCoupon, err)
	}
	return nil
}

// Tell writes a message about an order into the transaction. Its id consists of kind and order, so that there is one of each
// kind.
func (s *Shop) Tell(ctx context.Context, tx *sql.Tx, o Order, kind, topic string, delay time.Duration) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = s.outbox.Insert(ctx, tx, producer.Message{
		MessageID: kind + ":" + o.Number, BizType: kind, Key: o.Number, Topic: topic, Body: body, Delay: delay,
	})
	return err
}

// Pay takes the payment of an order; false: it comes too late.
func (s *Shop) Pay(ctx context.Context, o Order) (bool, error) { return s.move(ctx, o, Paid, Settled) }

// Close cancels an unpaid order; false: it was paid, or is closed already.
func (s *Shop) Close(ctx context.Context, o Order) (bool, error) {
	return s.move(ctx, o, Cancelled, Closed)
}

// move is the race of payment and time-out: of two updates one finds the order unpaid, and only that one writes a message.
func (s *Shop) move(ctx context.Context, o Order, status int, kind string) (moved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTime)
	defer cancel()
	err = Transact(ctx, s.DB, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "UPDATE t_order SET status = ? WHERE order_no = ? AND status = ?", status, o.Number, Unpaid)
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		if moved = rows == 1; err != nil || !moved {
			return err
		}
		if status == Cancelled && o.Coupon != "" {
			if _, err := tx.ExecContext(ctx, "UPDATE t_coupon SET redeemed_by = NULL WHERE order_no = ? AND redeemed_by = ?", o.Coupon, o.Number); err != nil {
				return err
			}
		}
		return s.Tell(ctx, tx, o, kind, Topic, 0)
	})
	return moved && err == nil, err
}

// Void closes a request whose process is gone: the order's number is taken, so a transaction in progress fails. If the order
// exists the error satisfies IsDuplicate.
func (s *Shop) Void(ctx context.Context, product int, token string) error {
	_, err := s.DB.ExecContext(ctx, "INSERT INTO t_order (order_no, user_id, product_id, quantity, amount, epoch, status) VALUES (?, 0, ?, 0, 0, 0, ?)",
		token, product, Cancelled)
	if err != nil {
		return fmt.Errorf("close the request %s: %w", token, err)
	}
	return nil
}
