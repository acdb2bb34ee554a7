package shop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Traffic simulates the customers until ctx ends: perSecond requests per second, some sent twice, most orders paid at once, some
// exactly at their time-out, some never. It returns when all started requests are done.
func (s *Shop) Traffic(ctx context.Context, perSecond int, products []int) {
	var customers sync.WaitGroup
	defer customers.Wait()
	start := time.Now().UnixMilli() // each start has different numbers
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		quantity := 1 + rand.IntN(3)
		o := Order{
			Number: fmt.Sprintf("%d-%05d", start, n), User: 1 + rand.IntN(500), Product: products[rand.IntN(len(products))],
			Quantity: quantity, Amount: 1999 * quantity,
		}
		if n%3 == 0 {
			s.useCoupon(ctx, &o)
		}
		customers.Go(func() { s.customer(ctx, o) })
	}
}

// useCoupon gives an order to a customer with a coupon, if there is one. Two orders may choose the same.
func (s *Shop) useCoupon(ctx context.Context, o *Order) {
	_ = s.DB.QueryRowContext(ctx, "SELECT order_no, user_id FROM t_coupon WHERE redeemed_by IS NULL LIMIT 1").Scan(&o.Coupon, &o.User) // none: without
}

// customer sends one request and waits for it as long as a customer would.
func (s *Shop) customer(ctx context.Context, o Order) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.PayWithin)
	defer cancel()
	for range 1 + rand.IntN(2) { // an impatient customer sends it twice: the answer is the same
		if err := s.Place(own, o); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return // sold out, or something is away: the check closes what was begun
		}
	}
	wait := time.Duration(rand.Int64N(int64(s.PayWithin / 10)))
	switch rand.IntN(5) {
	case 0:
		return // never pays
	case 1: // at the end of the time, when the message comes
		wait = s.PayWithin + time.Duration(rand.Int64N(int64(200*time.Millisecond)))
	}
	if outbox.Wait(ctx, wait, nil) {
		_, _ = s.Pay(own, o) // a failed payment is a customer who does not pay
	}
}
