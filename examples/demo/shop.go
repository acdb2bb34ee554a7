package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/test/relay"
)

// shop is the application: business transactions, each with an order and its messages.
type shop struct {
	db    *sql.DB
	topic string
	book  *book // nil: no check, as after the account with --keep
	next  atomic.Int64
	// fail is called when the database fails repeatedly.
	fail func(error)
}

const (
	workers = 8
	// statementDeadline is the time-out of the application's transactions.
	statementDeadline = 20 * time.Second
	// maxFailures is where the demo stops instead of filling the account with the same error.
	maxFailures = 50
)

// Run runs perSecond transactions per second until the context ends, and finishes those it has begun.
func (s *shop) Run(ctx context.Context, perSecond int) {
	limiter := rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/20))
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for limiter.Wait(ctx) == nil { // its only error here is the end of the context
				s.transact(ctx)
			}
		})
	}
	work.Wait()
}

// transact runs one transaction to its end, even when ctx ends meanwhile, and records the outcome.
func (s *shop) transact(ctx context.Context) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementDeadline)
	defer cancel()
	err := s.order(own, newOrder(s.next.Add(1), s.topic))
	if err == nil || ctx.Err() != nil {
		return
	}
	if s.book == nil || s.book.Failed(err) >= maxFailures {
		s.fail(fmt.Errorf("the business transactions fail: %w", err))
	}
}

// order is the business transaction: the order and its messages are written together, or not at all.
func (s *shop) order(ctx context.Context, o order) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := o.insert(ctx, tx); err != nil || o.regretted {
		if rerr := tx.Rollback(); err == nil {
			err = rerr
		}
		if err == nil && s.book != nil {
			s.book.RolledBack()
		}
		return err
	}
	asked := time.Now()
	err = tx.Commit()
	switch {
	case s.book == nil:
	case err == nil:
		s.book.Committed(o.rows(), asked)
	default:
		s.book.Uncertain(o.rows())
	}
	return err
}

// order is what one transaction writes.
type order struct {
	number    int64
	customer  string
	cents     int64
	topic     string
	events    []string // biz_type of each message
	regretted bool     // rolled back after everything was written
}

// newOrder makes order number n: mostly one message, every tenth has three, every twentieth is rolled back.
func newOrder(n int64, topic string) order {
	o := order{
		number: n, customer: fmt.Sprintf("customer-%03d", n*7919%500), cents: n*7907%90_000 + 1_000,
		topic: topic, events: []string{"order.created"}, regretted: n%20 == 7,
	}
	if n%10 == 3 {
		o.events = append(o.events, "stock.reserved", "invoice.requested")
	}
	return o
}

func (o order) key() string { return fmt.Sprintf("%010d", o.number) }

// body is a JSON text of 200 to 600 bytes.
func (o order) body(event string) string {
	note := strings.Repeat("Please ring twice, thank you – 谢谢. ", int(o.number%10)+2)
	return fmt.Sprintf(`{"event":%q,"order":%q,"customer":%q,"amount":"%d.%02d","currency":"EUR","note":%q}`,
		event, o.key(), o.customer, o.cents/100, o.cents%100, note)
}

func (o order) insert(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (number, customer, cents) VALUES (?, ?, ?)", o.number, o.customer, o.cents)
	if err != nil {
		return fmt.Errorf("insert the order: %w", err)
	}
	rows, values := make([]string, len(o.events)), []any{}
	for i, event := range o.events {
		rows[i] = "(?, ?, ?, ?, ?, 'demo')"
		values = append(values, event, o.key(), o.topic, o.customer, o.body(event))
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO t_local_message (biz_type, biz_key, topic, sharding_key, message_body, created_by) VALUES "+
		strings.Join(rows, ", "), values...)
	if err != nil {
		return fmt.Errorf("insert the messages: %w", err)
	}
	return nil
}

// rows returns what a consumer must get of this order. Sweeps and the log may overtake each other, so their order is not
// compared.
func (o order) rows() []relay.Row {
	all := make([]relay.Row, len(o.events))
	for i, event := range o.events {
		all[i] = relay.Row{
			MessageID: event + ":" + o.key(), BizType: event, Key: o.key(), Topic: o.topic, ShardingKey: o.customer,
			Body: []byte(o.body(event)), Loose: true,
		}
	}
	return all
}
