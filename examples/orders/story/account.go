package story

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
)

// line is one comparison of the account.
type line struct {
	what      string
	got, want int
}

func (l line) String() string {
	mark := "ok"
	if l.got != l.want {
		mark = "WRONG"
	}
	return fmt.Sprintf("  %-62s %8d %8d  %s", l.what, l.got, l.want, mark)
}

// account has everything that must be right at the end, and further figures.
type account struct {
	lines []line
	notes []string
}

// Err lists what is wrong.
func (a account) Err() error {
	var wrong []string
	for _, l := range a.lines {
		if l.got != l.want {
			wrong = append(wrong, fmt.Sprintf("%s: %d, and not %d", l.what, l.got, l.want))
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("the account does not hold:\n  %s", strings.Join(wrong, "\n  "))
}

// The numbers of the account, by name. Orders of quantity 0 are closed requests; messages poison:... are the story's own.
var numbers = map[string]string{
	"orders":        "SELECT COUNT(*) FROM t_order WHERE quantity > 0",
	"unpaid":        "SELECT COUNT(*) FROM t_order WHERE status = 0",
	"paid":          "SELECT COUNT(*) FROM t_order WHERE status = 1",
	"cancelled":     "SELECT COUNT(*) FROM t_order WHERE status = 2 AND quantity > 0",
	"void":          "SELECT COUNT(*) FROM t_order WHERE quantity = 0",
	"unsent":        "SELECT COUNT(*) FROM t_local_message WHERE status <> 2 AND topic <> 'no topic!' AND message_id NOT LIKE 'poison:%'",
	"no timeout":    "SELECT COUNT(*) FROM t_local_message WHERE status = 3 AND business_type = 'order_timeout'",
	"with coupon":   "SELECT COUNT(*) FROM t_order WHERE coupon IS NOT NULL AND status <> 2",
	"redeemed":      "SELECT COUNT(*) FROM t_coupon c JOIN t_order o ON c.redeemed_by = o.order_no AND o.coupon = c.order_no WHERE o.status <> 2",
	"redeemed all":  "SELECT COUNT(*) FROM t_coupon WHERE redeemed_by IS NOT NULL",
	"given back":    "SELECT COUNT(*) FROM t_order WHERE coupon IS NOT NULL AND status = 2",
	"failed":        "SELECT COUNT(*) FROM t_local_message WHERE status = 3",
	"created m":     "SELECT COUNT(*) FROM t_local_message JOIN t_order ON business_id = order_no WHERE business_type = 'order_created'",
	"timeout m":     "SELECT COUNT(*) FROM t_local_message JOIN t_order ON business_id = order_no WHERE business_type = 'order_timeout'",
	"paid m":        "SELECT COUNT(*) FROM t_local_message JOIN t_order ON business_id = order_no AND t_order.status = 1 WHERE business_type = 'order_paid'",
	"cancelled m":   "SELECT COUNT(*) FROM t_local_message JOIN t_order ON business_id = order_no AND t_order.status = 2 WHERE business_type = 'order_cancelled'",
	"messages":      "SELECT COUNT(*) FROM t_local_message WHERE message_id NOT LIKE 'poison:%'",
	"stock effects": "SELECT COUNT(*) FROM inbox_message WHERE consumer = 'stock' AND message_id NOT LIKE 'poison:%'",
	"points":        "SELECT COUNT(*) FROM t_points JOIN t_order USING (order_no) WHERE status = 1",
	"points all":    "SELECT COUNT(*) FROM t_points",
	"coupons":       "SELECT COUNT(*) FROM t_coupon JOIN t_order USING (order_no) WHERE status = 1",
	"coupons all":   "SELECT COUNT(*) FROM t_coupon",
	"notified":      "SELECT COUNT(DISTINCT message_id) FROM t_notification JOIN t_local_message USING (message_id) WHERE message_id NOT LIKE 'poison:%'",
	"notifications": "SELECT COUNT(*) FROM t_notification WHERE message_id NOT LIKE 'poison:%'",
	"letters open":  "SELECT COUNT(*) FROM t_dead_letter WHERE state = 'open'",
	"letters back":  "SELECT COUNT(*) FROM t_dead_letter WHERE state = 'sent back'",
	"discarded":     "SELECT COUNT(*) FROM t_dead_letter WHERE state = 'discarded'",
	"spared":        "SELECT COUNT(DISTINCT consumer) FROM (SELECT consumer FROM t_dropped UNION SELECT consumer FROM inbox_message WHERE copies > 0) AS c",
	"flushed":       "SELECT COUNT(*) FROM t_stock_flush JOIN t_stock USING (product_id) WHERE t_stock_flush.available = t_stock.available",
	"copies sql":    "SELECT COALESCE(SUM(copies), 0) FROM inbox_message",
	"copies redis":  "SELECT COUNT(*) FROM t_dropped",
}

// account compares the content of the tables and of Redis.
func (s *story) account(ctx context.Context) (a account, err error) {
	n := map[string]int{}
	for name, query := range numbers {
		var value int
		if err := s.servers.db.QueryRowContext(ctx, query).Scan(&value); err != nil {
			return a, fmt.Errorf("%s: %w", name, err)
		}
		n[name] = value
	}
	a.lines = []line{
		{"orders and their created messages", n["created m"], n["orders"]},
		{"orders and their time-out messages", n["timeout m"], n["orders"]},
		{"paid orders and their paid messages", n["paid m"], n["paid"]},
		{"cancelled orders and their cancelled messages", n["cancelled m"], n["cancelled"]},
		{"messages in all: no order was both paid and released", n["messages"], 2*n["orders"] + n["paid"] + n["cancelled"]},
		{"orders neither paid nor cancelled", n["unpaid"], 0},
		{"messages that were not sent", n["unsent"], 0},
		{"stock: effects of created, paid and cancelled", n["stock effects"], n["orders"] + n["paid"] + n["cancelled"]},
		{"points: effects of paid", n["points"], n["paid"]},
		{"points: none without a paid order", n["points all"], n["points"]},
		{"coupon: effects of paid", n["coupons"], n["paid"]},
		{"coupon: none without a paid order", n["coupons all"], n["coupons"]},
		{"notification: messages of paid and cancelled orders", n["notified"], n["paid"] + n["cancelled"]},
		{"letters that are still open", n["letters open"], 0},
		{"letters of the poison messages, one of each consumer that refused", n["discarded"], s.poison.letters},
		{"delayed messages that FAILED; their orders are closed above", n["no timeout"], s.timeouts},
		{"orders with a coupon that are not cancelled: it is redeemed", n["redeemed"], n["with coupon"]},
		{"coupons redeemed by other orders", n["redeemed all"] - n["redeemed"], 0},
		{"alerts of the stock check that the webhook got", min(s.alerts.stockCalls(), s.wrong), s.wrong},
		{"rows that the relay could not publish", n["failed"], s.poison.failed},
		{"gaps in the binlog that the relay has recorded", s.gaps, s.purges},
		{"products whose stock the check has flushed from Redis", n["flushed"], products},
	}
	if s.republished {
		a.lines = append(a.lines, line{"consumers that got copies, which their inbox dropped", n["spared"], 4})
	}
	a.notes = []string{
		fmt.Sprintf("%d copies dropped by the inbox in the database, its own repeats among them, %d by those in Redis", n["copies sql"], n["copies redis"]),
		fmt.Sprintf("%d notifications went out again after their inbox was lost", n["notifications"]-n["notified"]),
		fmt.Sprintf("%d requests closed whose shop had died, %d letters sent back and handled", n["void"], n["letters back"]),
		fmt.Sprintf("%d coupons redeemed, %d given back by orders that were cancelled", n["redeemed all"], n["given back"]),
	}
	return a, errors.Join(s.webhook(ctx, &a), s.products(ctx, &a))
}

// stock is Redis's.
func (s *story) stock() shop.Stock { return shop.Stock{Client: s.servers.client} }

// products compares the orders of each product with the stock consumer's table and Redis.
func (s *story) products(ctx context.Context, a *account) error {
	var conserved, unlocked, sold, agree, open int
	count := func(n *int, holds bool) {
		if holds {
			*n++
		}
	}
	for product := 1; product <= products; product++ {
		var total, lockedNow, soldNow, available, paid int
		err := s.servers.db.QueryRowContext(ctx, `SELECT total, locked, sold, available, (SELECT COALESCE(SUM(quantity), 0) FROM t_order
			WHERE product_id = s.product_id AND status = 1) FROM t_stock s WHERE product_id = ?`, product).
			Scan(&total, &lockedNow, &soldNow, &available, &paid)
		if err != nil {
			return err
		}
		inRedis, err := s.stock().Available(ctx, product)
		if err != nil {
			return err
		}
		pending, err := s.stock().Pending(ctx, product, -time.Minute)
		if err != nil {
			return err
		}
		open += len(pending)
		count(&conserved, available+lockedNow+soldNow == total)
		count(&unlocked, lockedNow == 0)
		count(&sold, soldNow == paid)
		count(&agree, inRedis == available)
	}
	a.lines = append(
		a.lines,
		line{"products whose total is available, locked and sold", conserved, products},
		line{"products with nothing locked, now that every order is final", unlocked, products},
		line{"reservations of requests that may or may not have an order", open, 0},
		line{"products whose sold stock equals the paid orders", sold, products},
		line{"products with equal stock in Redis and the database", agree, products},
	)
	return nil
}
