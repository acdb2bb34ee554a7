// Command orders is the order chain as a program that verifies itself: a shop, its consumers and canal-outbox between them, each
// a separate process. `orders run` starts everything with the servers it needs, causes faults, and exits 0 only if the account at
// the end is right. docs/examples/orders.md explains it.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/canal-outbox/canal-outbox/examples/orders/bus"
	"github.com/canal-outbox/canal-outbox/examples/orders/check"
	"github.com/canal-outbox/canal-outbox/examples/orders/consumers"
	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
	"github.com/canal-outbox/canal-outbox/examples/orders/story"
)

const usage = `usage: orders [flags] COMMAND

  run                       start everything, break it, and print the account
  shop                      place orders and take payments
  consume NAME              stock, points, coupon, notification, timeout or letters
  check                     compare Redis with the database, and make what is missing
  letters list              what no consumer could handle
  letters send-back NAME    give a consumer its letters again
  letters discard ID        close the letters of a message

flags:
`

// settings are the flags of all commands.
type settings struct {
	run       story.Options
	database  string // DSN
	redis     string
	broker    bus.Address
	payWithin time.Duration
	checks    check.Check
	webhook   string
	rate      int
}

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	s := settings{}
	flags := flag.NewFlagSet("orders", flag.ExitOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage); flags.PrintDefaults() }
	flags.StringVar(&s.run.Broker, "broker", "kafka", "run: kafka or rocketmq")
	flags.StringVar(&s.run.Database, "database", "mariadb", "run: mysql or mariadb")
	flags.DurationVar(&s.run.Duration, "duration", 2*time.Minute, "run: how long the shop is open")
	flags.StringVar(&s.run.Relay, "relay", "", "run: the canal-outbox binary (default: the one next to this program)")
	flags.StringVar(&s.database, "dsn", "", "database of the shop")
	flags.StringVar(&s.redis, "redis", "", "host:port of Redis")
	flags.StringVar(&s.broker.Kafka, "kafka", "", "host:port of a Kafka broker")
	flags.StringVar(&s.broker.RocketMQ, "rocketmq", "", "host:port of a RocketMQ name server")
	flags.DurationVar(&s.payWithin, "pay-within", 10*time.Second, "how long an order waits for its payment")
	flags.DurationVar(&s.checks.Every, "check-every", 5*time.Second, "check: the interval, apart from -pay-within; an hour in a shop")
	flags.DurationVar(&s.checks.Abandoned, "abandoned", 10*time.Second, "check: age at which the shop of a request counts as dead")
	flags.StringVar(&s.webhook, "webhook", "", "check: the URL that alerts are posted to")
	flags.IntVar(&s.rate, "rate", 20, "requests for an order per second")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if flags.Arg(0) == "run" {
		return s.story(ctx)
	}
	return s.part(ctx, flags.Args())
}

// story runs everything, with this program as the shop's parts.
func (s settings) story(ctx context.Context) (err error) {
	if s.run.Orders, err = os.Executable(); err != nil {
		return err
	}
	if s.run.Relay == "" {
		s.run.Relay = filepath.Join(filepath.Dir(s.run.Orders), "canal-outbox")
	}
	s.run.PayWithin, s.run.Rate = s.payWithin, s.rate
	return story.Run(ctx, s.run, os.Stdout)
}

// part is one process of the chain, or a command of its operator.
func (s settings) part(ctx context.Context, args []string) error {
	db, err := sql.Open("mysql", s.database)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxIdleConns(16)
	client := redis.NewClient(&redis.Options{Addr: s.redis})
	defer client.Close()
	service, err := shop.New(db, shop.Stock{Client: client}, s.payWithin)
	if err != nil {
		return err
	}
	name := ""
	if len(args) > 1 {
		name = args[len(args)-1]
	}
	switch what := append(args, "")[0]; {
	case what == "shop":
		products, err := check.Products(ctx, db)
		if err == nil {
			service.Traffic(ctx, s.rate, products)
		}
		return err
	case what == "check":
		s.checks.Shop, s.checks.Overdue, s.checks.Say = service, 2*s.payWithin, log.Printf
		if s.webhook != "" {
			s.checks.Alert = check.Webhook(s.webhook)
		}
		return s.checks.Run(ctx)
	case what == "letters" && name == "list":
		return consumers.ListLetters(ctx, db, os.Stdout)
	case what == "letters" && args[1] == "discard":
		return consumers.Discard(ctx, db, name)
	case what == "consume" && name != "", what == "letters" && name != "":
		return s.onBus(ctx, consumers.Environment{DB: db, Redis: client, Shop: service}, what, name)
	}
	return errors.New("no such command: orders -help lists them")
}

func (s settings) onBus(ctx context.Context, env consumers.Environment, what, name string) (err error) {
	if env.Bus, err = s.broker.Open(); err != nil {
		return err
	}
	defer env.Bus.Close()
	if what == "consume" {
		return consumers.Run(ctx, env, name)
	}
	n, err := consumers.SendBack(ctx, env, name)
	fmt.Printf("%d letters went back to %s\n", n, name)
	return err
}
