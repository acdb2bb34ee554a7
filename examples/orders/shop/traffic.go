package shop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Traffic plays the customers until ctx ends: so many requests a second, some sent twice, most orders paid at once, some at the
// very moment of their time-out, some never. It returns when all that it has begun is done.
func (s *Shop) Traffic(ctx context.Context, perSecond int, products []int) {
	var customers sync.WaitGroup
	defer customers.Wait()
	start := time.Now().UnixMilli() // numbers of another start are others
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

// useCoupon gives an order to a customer who has a coupon, if there is one. Two orders may choose the same.
func (s *Shop) useCoupon(ctx context.Context, o *Order) {
	_ = s.DB.QueryRowContext(ctx, "SELECT order_no, user_id FROM t_coupon WHERE redeemed_by IS NULL LIMIT 1").Scan(&o.Coupon, &o.User) // none: without
}

// customer sends one request and sees it through, for as long as a customer waits.
func (s *Shop) customer(ctx context.Context, o Order) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.PayWithin)
	defer cancel()
	for range 1 + rand.IntN(2) { // who is impatient asks twice: the answer is the same
		if err := s.Place(own, o); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return // sold out, or something is away: the check looks after what was begun
		}
	}
	wait := time.Duration(rand.Int64N(int64(s.PayWithin / 10)))
	switch rand.IntN(5) {
	case 0:
		return // never pays
	case 1: // just when the time is over, which is when the message comes
		wait = s.PayWithin + time.Duration(rand.Int64N(int64(200*time.Millisecond)))
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return
	}
	_, _ = s.Pay(own, o) // a payment that fails is a customer who does not pay
}
