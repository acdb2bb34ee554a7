package consumers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/canal-outbox/canal-outbox/examples/orders/bus"
	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// published is a bus that records published messages.
type published struct {
	letters []letter
	err     error // of each Publish
}

func (*published) Consume(context.Context, string, []string, bus.Handler) error { return nil }
func (*published) Close()                                                       {}

func (p *published) Publish(_ context.Context, topic, _, body string) error {
	if p.err != nil {
		return p.err
	}
	var l letter
	if err := json.Unmarshal([]byte(body), &l); err != nil || topic != DeadTopic {
		return fmt.Errorf("%s is no letter of %s: %w", body, topic, err)
	}
	p.letters = append(p.letters, l)
	return nil
}

func newEnvironment(t *testing.T, flavor testkit.Flavor) (Environment, *published) {
	t.Helper()
	server := testkit.SharedDatabase(t, flavor)
	db := server.Connect(t, server.CreateSchema(t))
	testkit.Must(t, shop.Prepare(t.Context(), db, 1, 100))
	client := redis.NewClient(&redis.Options{Addr: testkit.SharedRedis(t).Addr()})
	t.Cleanup(func() { testkit.Must(t, client.Close()) })
	testkit.Must(t, client.FlushAll(t.Context()).Err())
	service, err := shop.New(db, shop.Stock{Client: client}, 0)
	testkit.Must(t, err)
	letters := &published{}
	return Environment{DB: db, Redis: client, Bus: letters, Shop: service}, letters
}

func made(t *testing.T, c consumer, err error) consumer {
	t.Helper()
	testkit.Must(t, err)
	return c
}

// paid returns the message of an order with that number.
func paid(number string) bus.Message {
	return bus.Message{ID: "order_paid:1", Kind: shop.Settled, Body: fmt.Sprintf(`{"order_no": %q, "product": 1, "quantity": 1, "amount": 500}`, number)}
}

// A column is too short for a number of 70 characters: the message is the cause, and the error comes with each attempt. The
// message becomes a letter, and the consumer takes the next one.
func TestG31_OneBadMessageStopsNoConsumer(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		env, sent := newEnvironment(t, flavor)
		for _, make := range []func(Environment) (consumer, error){points, coupon} {
			c, err := make(env)
			c = made(t, c, err)
			sent.letters = nil
			if err := env.take(t.Context(), c, paid(strings.Repeat("7", 70))); err != nil {
				t.Fatalf("%s, %s: the message comes again and again: %v", flavor, c.name, err)
			}
			if len(sent.letters) != 1 || sent.letters[0].Consumer != c.name || !strings.Contains(sent.letters[0].Reason, "1406") {
				t.Errorf("%s, %s: letters %+v", flavor, c.name, sent.letters)
			}
			good := paid("order-1")
			good.ID = "order_paid:2"
			testkit.Must(t, env.take(t.Context(), c, good))
			if len(sent.letters) != 1 {
				t.Errorf("%s, %s: a good message became a letter: %+v", flavor, c.name, sent.letters)
			}
		}
		var points, coupons int
		testkit.Must(t, env.DB.QueryRow("SELECT (SELECT COUNT(*) FROM t_points), (SELECT COUNT(*) FROM t_coupon)").Scan(&points, &coupons))
		if points != 1 || coupons != 1 {
			t.Errorf("%s: %d rows of points, %d of coupons", flavor, points, coupons)
		}
	}
}

// The database, Redis or the broker is away: the message waits, for any time, and does not become a letter.
func TestG31_AMessageWaitsForWhatIsAway(t *testing.T) {
	env, sent := newEnvironment(t, testkit.MariaDB)
	c, err := points(env)
	made(t, c, err)
	gone := env
	gone.Redis = redis.NewClient(&redis.Options{Addr: testkit.FreeAddress(t), MaxRetries: -1})
	c, err = points(gone)
	c = made(t, c, err)
	if err := gone.take(t.Context(), c, paid("a")); err == nil || !away(err) {
		t.Errorf("without Redis: %v", err)
	}
	testkit.Must(t, gone.Redis.Close())
	dark := env
	dark.DB, err = sql.Open("mysql", "root@tcp("+testkit.FreeAddress(t)+")/shop")
	testkit.Must(t, err)
	defer dark.DB.Close()
	c, err = stock(dark)
	c = made(t, c, err)
	if err := dark.take(t.Context(), c, paid("b")); err == nil || !away(err) {
		t.Errorf("without a database: %v", err)
	}
	locked, err := env.DB.BeginTx(t.Context(), nil)
	testkit.Must(t, err)
	_, err = locked.Exec("UPDATE t_stock SET version = version")
	testkit.Must(t, err)
	impatient, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c, err = stock(env)
	c = made(t, c, err)
	if err := env.take(impatient, c, paid("c")); err == nil || !away(err) {
		t.Errorf("behind a lock: %v", err)
	}
	testkit.Must(t, locked.Rollback())
	c, err = points(env)
	c = made(t, c, err)
	sent.err = errors.New("the broker is away")
	if err := env.take(t.Context(), c, bus.Message{ID: "bad", Kind: shop.Settled, Body: "{no order"}); err == nil {
		t.Error("a letter that could not be sent was lost")
	}
	if len(sent.letters) > 0 {
		t.Errorf("letters %+v", sent.letters)
	}
}
