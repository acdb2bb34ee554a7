package check_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/canal-outbox/canal-outbox/examples/orders/check"
	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const total = 100

// bed is a shop with one product whose stock the check has created in a separate Redis.
type bed struct {
	*testing.T
	shop  *shop.Shop
	check check.Check
	said  []string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	server, ctx := testkit.SharedMariaDB(t), t.Context()
	memory, err := testkit.StartRedis(ctx)
	testkit.Must(t, err)
	client := redis.NewClient(&redis.Options{Addr: memory.Addr()})
	t.Cleanup(func() { testkit.Must(t, errors.Join(client.Close(), memory.Close())) })
	b := &bed{T: t}
	db := server.Connect(t, server.CreateSchema(t))
	testkit.Must(t, shop.Prepare(ctx, db, 1, total))
	b.shop, err = shop.New(db, shop.Stock{Client: client}, time.Hour)
	testkit.Must(t, err)
	b.check = check.Check{Shop: b.shop, Abandoned: -time.Minute, Overdue: time.Hour, Say: func(format string, args ...any) {
		b.said = append(b.said, fmt.Sprintf(format, args...))
	}}
	b.round()
	return b
}

func (b *bed) round() {
	b.Helper()
	testkit.Must(b, b.check.Round(b.Context()))
}

// want compares both stocks with the expected available quantity.
func (b *bed) want(available int) {
	b.Helper()
	inRedis, err := b.shop.Stock.Available(b.Context(), 1)
	testkit.Must(b, err)
	inDatabase, err := check.Available(b.Context(), b.shop.DB, 1)
	testkit.Must(b, err)
	if inRedis != available || inDatabase != available {
		b.Errorf("%d in Redis and %d by the orders, want %d", inRedis, inDatabase, available)
	}
}

func order(number string, quantity int) shop.Order {
	return shop.Order{Number: number, User: 1, Product: 1, Quantity: quantity, Amount: 100}
}

func (b *bed) place(o shop.Order, want error) {
	b.Helper()
	if err := b.shop.Place(b.Context(), o); !errors.Is(err, want) || (want == nil && err != nil) {
		b.Errorf("place %s: %v, want %v", o.Number, err, want)
	}
}

func TestARepeatedRequestReservesOnce(t *testing.T) {
	b := newBed(t)
	b.place(order("a", 60), nil)
	b.place(order("a", 60), nil)
	b.want(40)
	b.place(order("b", 60), shop.ErrSoldOut)
	b.want(40)
	for range 2 { // a cancelled order is released once
		_, err := b.shop.Close(t.Context(), order("a", 60))
		testkit.Must(t, err)
		testkit.Must(t, b.shop.Stock.Release(t.Context(), 1, "a"))
	}
	b.want(total)
	b.place(order("a", 60), shop.ErrReleased)
}

func TestPaymentAndTimeoutRace(t *testing.T) {
	b := newBed(t)
	var paid, closed int
	for n := range 50 {
		o := order(fmt.Sprint("race-", n), 1)
		b.place(o, nil)
		var both sync.WaitGroup
		var didPay, didClose bool
		both.Go(func() { didPay, _ = b.shop.Pay(t.Context(), o) })
		both.Go(func() { didClose, _ = b.shop.Close(t.Context(), o) })
		both.Wait()
		if didPay == didClose {
			t.Fatalf("order %s: paid %v, closed %v", o.Number, didPay, didClose)
		}
		if didPay {
			paid++
			continue
		}
		closed++
		testkit.Must(t, b.shop.Stock.Release(t.Context(), 1, o.Number))
	}
	b.want(total - paid)
	var messages int
	testkit.Must(t, b.shop.DB.QueryRow("SELECT COUNT(*) FROM t_local_message").Scan(&messages))
	if messages != 2*50+paid+closed {
		t.Errorf("%d messages of 50 orders", messages)
	}
}

// A process died between the reservation and the order. Its statements in progress fail.
func TestAbandonedReservationComesBack(t *testing.T) {
	b := newBed(t)
	_, err := b.shop.Stock.Reserve(t.Context(), 1, 7, "dead")
	testkit.Must(t, err)
	b.place(order("alive", 2), nil)
	b.round()
	b.want(total - 2)
	b.place(order("dead", 7), shop.ErrReleased)
	b.round()
	b.want(total - 2)
}

// empty loses Redis, and has the stock recreated, right after the next reservation.
type empty struct {
	b    *bed
	done bool
}

func (*empty) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (*empty) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (e *empty) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && !e.done && (cmd.Name() == "eval" || cmd.Name() == "evalsha") {
			e.done = true
			testkit.Must(e.b, e.b.shop.Stock.Client.FlushAll(ctx).Err())
			e.b.round()
		}
		return err
	}
}

// The reservation is gone when the order is written: the new stock does not include it, so there must be no order.
func TestAnOrderOfALostReservationIsNotPlaced(t *testing.T) {
	b := newBed(t)
	b.place(order("unpaid", 1), nil)
	b.place(order("paid", 2), nil)
	_, err := b.shop.Pay(t.Context(), order("paid", 2))
	testkit.Must(t, err)
	b.shop.Stock.Client.AddHook(&empty{b: b})
	if err := b.shop.Place(t.Context(), order("late", 5)); err == nil {
		t.Error("an order without a reservation was placed")
	}
	b.want(total - 3)
	for number, quantity := range map[string]int{"unpaid": 1, "paid": 2} { // placed orders are still known
		b.place(order(number, quantity), nil)
		b.want(total - 3)
	}
	_, err = b.shop.Close(t.Context(), order("unpaid", 1))
	testkit.Must(t, err)
	testkit.Must(t, b.shop.Stock.Release(t.Context(), 1, "unpaid"))
	b.want(total - 2)
}

// Only one key is deleted: tokens and requests in progress remain.
func TestAMissingStockIsMadeAnew(t *testing.T) {
	b := newBed(t)
	b.place(order("unpaid", 1), nil)
	b.place(order("cancelled", 4), nil)
	_, err := b.shop.Stock.Reserve(t.Context(), 1, 7, "on its way")
	testkit.Must(t, err)
	_, err = b.shop.Close(t.Context(), order("cancelled", 4)) // and its release comes later
	testkit.Must(t, err)
	testkit.Must(t, b.shop.Stock.Client.Del(t.Context(), "stock:{1}").Err())
	b.place(order("refused", 1), shop.ErrMissing)
	if err := b.shop.Stock.Release(t.Context(), 1, "cancelled"); !errors.Is(err, shop.ErrMissing) {
		t.Errorf("a release without a stock: %v", err)
	}
	b.round()
	b.want(total - 1)
	for _, token := range []string{"cancelled", "on its way"} {
		testkit.Must(t, b.shop.Stock.Release(t.Context(), 1, token))
	}
	b.want(total - 1)
}

func TestG31_ADifferenceRaisesAnAlertOnce(t *testing.T) {
	b := newBed(t)
	var calls []string
	answer := http.StatusServiceUnavailable
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		testkit.Must(t, err)
		calls = append(calls, string(body))
		w.WriteHeader(answer)
	}))
	defer hook.Close()
	b.check.Alert = check.Webhook(hook.URL)
	testkit.Must(t, b.shop.Stock.Client.HIncrBy(t.Context(), "stock:{1}", "available", 1000).Err())
	if err := b.check.Round(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("an alert that the webhook did not take: %v", err)
	}
	answer = http.StatusOK
	b.round()
	b.round()
	const want = `{"text":"product 1 has 1100 in Redis and 100 in the database","type":"stock"}`
	if len(calls) != 2 || calls[0] != want || calls[1] != want {
		t.Errorf("calls of the webhook: %q", calls)
	}
	testkit.Must(t, b.shop.Stock.Client.HIncrBy(t.Context(), "stock:{1}", "available", -1000).Err())
	b.round()
	testkit.Must(t, b.shop.Stock.Client.HIncrBy(t.Context(), "stock:{1}", "available", 1000).Err())
	b.round()
	if len(calls) != 3 {
		t.Errorf("a number that is wrong again: calls %q", calls)
	}
}

// The delayed message of an order is FAILED: the scan closes the order, releases its coupon, and writes the message that releases
// the stock. An order that it cannot close does not affect the others.
func TestG31_UnpaidOrdersAreClosedWithoutTheirMessage(t *testing.T) {
	b := newBed(t)
	testkit.Exec(t, b.shop.DB, "INSERT INTO t_coupon (order_no, user_id, cents) VALUES ('earlier', 1, 500)")
	for _, number := range []string{"bad", "good", "paid", "young"} {
		o := order(number, 1)
		if number == "good" {
			o.Coupon = "earlier"
		}
		b.place(o, nil)
	}
	_, err := b.shop.Pay(t.Context(), order("paid", 1))
	testkit.Must(t, err)
	testkit.Exec(t, b.shop.DB, "UPDATE t_local_message SET status = 3 WHERE business_type = 'order_timeout'")
	testkit.Exec(t, b.shop.DB, "UPDATE t_order SET created_at = NOW(3) - INTERVAL 2 HOUR WHERE order_no <> 'young'")
	// The message of this one exists already, so its transaction fails.
	testkit.Exec(t, b.shop.DB, "UPDATE t_local_message SET message_id = 'order_cancelled:bad' WHERE message_id = 'order_timeout:bad'")
	if err := b.check.Round(t.Context()); err == nil || !strings.Contains(err.Error(), "close the order bad") {
		t.Errorf("the order that cannot be closed: %v", err)
	}
	for number, want := range map[string]int{"bad": shop.Unpaid, "good": shop.Cancelled, "paid": shop.Paid, "young": shop.Unpaid} {
		var status int
		testkit.Must(t, b.shop.DB.QueryRow("SELECT status FROM t_order WHERE order_no = ?", number).Scan(&status))
		if status != want {
			t.Errorf("order %s has the status %d, want %d", number, status, want)
		}
	}
	var messages, free int
	testkit.Must(t, b.shop.DB.QueryRow("SELECT (SELECT COUNT(*) FROM t_local_message WHERE message_id = 'order_cancelled:good'), "+
		"(SELECT COUNT(*) FROM t_coupon WHERE redeemed_by IS NULL)").Scan(&messages, &free))
	if messages != 1 || free != 1 {
		t.Errorf("%d messages of the closed order, %d free coupons", messages, free)
	}
}

// Of many orders with one coupon one is placed; when it is cancelled the coupon can be redeemed again.
func TestG31_ACouponIsRedeemedOnce(t *testing.T) {
	b := newBed(t)
	testkit.Exec(t, b.shop.DB, "INSERT INTO t_coupon (order_no, user_id, cents) VALUES ('earlier', 1, 500)")
	with := func(number string) shop.Order {
		o := order(number, 1)
		o.Coupon = "earlier"
		return o
	}
	var all sync.WaitGroup
	errs := make([]error, 10)
	for i := range errs {
		all.Go(func() { errs[i] = b.shop.Place(t.Context(), with(fmt.Sprint("order-", i))) })
	}
	all.Wait()
	placed := -1
	for i, err := range errs {
		if err == nil && placed < 0 {
			placed = i
		} else if !errors.Is(err, shop.ErrCoupon) {
			t.Errorf("order-%d: %v", i, err)
		}
	}
	if placed < 0 {
		t.Fatalf("no order was placed: %v", errs)
	}
	b.want(total - 1)
	_, err := b.shop.Close(t.Context(), with(fmt.Sprint("order-", placed)))
	testkit.Must(t, err)
	b.place(with("again"), nil)
	stranger := with("stranger")
	stranger.User = 2
	b.place(stranger, shop.ErrCoupon)
}

func TestADifferenceRaisesAnAlert(t *testing.T) {
	b := newBed(t)
	for _, by := range []int64{10, 1} {
		b.said = nil
		testkit.Must(t, b.shop.Stock.Client.HIncrBy(t.Context(), "stock:{1}", "available", by).Err())
		b.round()
		if alert := len(b.said) > 0; alert != (by == 1) {
			t.Errorf("said: %q", b.said)
		}
	}
	var flushed int
	testkit.Must(t, b.shop.DB.QueryRow("SELECT available FROM t_stock_flush WHERE product_id = 1").Scan(&flushed))
	if flushed != total+10 { // the tolerated difference, and not the one of the alert
		t.Errorf("%d were flushed to the database", flushed)
	}
}
