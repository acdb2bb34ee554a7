package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/servers"
)

// Options of Run. The zero value of each field but Relay is the usual choice.
type Options struct {
	Relay    string         // path of the relay's binary
	Flavor   testkit.Flavor // of the database; "": what the machine has
	Kafka    string         // host:port of an external broker; "": an embedded one
	RocketMQ string         // host:port of an external name server
	Duration time.Duration  // how long the application runs; 0: DefaultDuration
	Rate     int            // business transactions per second; 0: DefaultRate
	Keep     bool           // continue after the account until the context ends
}

// The defaults of Options, and the minimum duration with time for the faults. Starting and settling take a few seconds more.
const (
	DefaultDuration = 35 * time.Second
	DefaultRate     = 300
	MinDuration     = 10 * time.Second
)

// demo is one run.
type demo struct {
	opts   Options
	screen *screen
	fail   context.CancelCauseFunc // ends the run with an error

	dir      string
	database *database
	broker   broker
	relay    *child
	shop     *shop
	book     *book

	killCopies int // see Account
	purged     bool
}

// ErrInterrupted reports that a signal ended the demo before its account was complete. Everything was removed.
var ErrInterrupted = errors.New("interrupted: everything the demo had started is stopped and removed")

// Run runs the demo and prints to out, a terminal or not. It handles the signals that end a program: the first one ends the demo
// in order, more change nothing. The error says what is wrong, or what could not be done.
func Run(ctx context.Context, opts Options, out io.Writer) (err error) {
	if opts.Duration == 0 {
		opts.Duration = DefaultDuration
	}
	if opts.Rate == 0 {
		opts.Rate = DefaultRate
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer holdSignals(func() { fail(ErrInterrupted) })()
	d := &demo{opts: opts, fail: fail, book: newBook(), screen: newScreen(out, fail)}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.run(ctx); err != nil {
		return d.explain(ctx, err)
	}
	return nil
}

// holdSignals keeps signals from ending the process, because a second Ctrl-C would leave servers' directories. A broken pipe at
// the output appears as the error of a write.
func holdSignals(interrupted func()) (release func()) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	go func() {
		defer close(done)
		for s := range signals {
			if s != syscall.SIGPIPE {
				interrupted()
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}

func (d *demo) run(ctx context.Context) error {
	if err := d.start(ctx); err != nil {
		return err
	}
	account, err := d.work(ctx)
	if err != nil {
		return err
	}
	d.show(account)
	if err := account.Err(); err != nil {
		return err
	}
	if d.opts.Keep {
		return d.keep(ctx)
	}
	return nil
}

// explain replaces the end of the context by its cause, and shows the last lines of the relay's log where they may help.
func (d *demo) explain(ctx context.Context, err error) error {
	d.screen.Keep()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
		if errors.Is(cause, context.Canceled) { // the caller's own signal handling was faster
			err = ErrInterrupted
		}
	}
	if d.relay != nil && !errors.Is(err, ErrInterrupted) {
		d.screen.Say("\nThe last lines of the relay's log:\n%s", d.relay.LogTail(30))
	}
	return err
}

// start creates everything in the order in which it is needed.
func (d *demo) start(ctx context.Context) (err error) {
	d.screen.Say("canal-outbox-demo: a shop commits orders, canal-outbox publishes their messages.\n")
	if d.dir, err = os.MkdirTemp("", "canal-outbox-demo-"); err != nil {
		return fmt.Errorf("directory of the demo: %w", err)
	}
	if err := d.cache(); err != nil {
		return err
	}
	if d.database, err = startDatabase(ctx, d.opts.Flavor, d.screen.Say); err != nil {
		return err
	}
	d.screen.Say("  database   %s on %s, private", d.database.title(), d.database.Addr())
	if d.broker, err = d.startBroker(ctx); err != nil {
		return err
	}
	d.screen.Say("  broker     %s, on %s, topic %s", d.broker.Title(), d.broker.Address(), d.broker.Topic())
	listen, err := freeAddress()
	if err != nil {
		return err
	}
	if d.relay, err = newChild(d.opts.Relay, d.dir, d.database.Addr(), d.broker.Sink(), listen, d.fail); err != nil {
		return err
	}
	if err := d.relay.Start(ctx); err != nil {
		return err
	}
	d.screen.Say("  relay      process %d, dashboard http://%s/", d.relay.PID(), listen)
	d.screen.Say("             log in %s", d.relay.log)
	d.screen.Say("  shop       %s transactions per second: an order and its messages are written together", count(d.opts.Rate))
	return nil
}

// cache puts the servers' cache into the demo's own directory on a machine that has none, so that nothing is left. An existing
// cache saves two seconds at the next start, and an unpacked MySQL must stay there.
func (d *demo) cache() error {
	if dir, err := servers.Cache(); err == nil {
		if _, err := os.Stat(dir); err == nil || d.opts.Flavor == testkit.MySQL {
			return nil
		}
	}
	return os.Setenv("CANAL_OUTBOX_CACHE", filepath.Join(d.dir, "cache"))
}

func (d *demo) startBroker(ctx context.Context) (broker, error) {
	switch {
	case d.opts.Kafka != "" && d.opts.RocketMQ != "":
		return nil, errors.New("a demo has one broker: give --kafka or --rocketmq, not both")
	case d.opts.Kafka != "":
		return orNil(givenKafka(ctx, d.opts.Kafka))
	case d.opts.RocketMQ != "":
		return orNil(givenRocketMQ(ctx, d.opts.RocketMQ))
	}
	return orNil(startEmbeddedKafka())
}

// orNil keeps a nil pointer from becoming an interface that is not nil.
func orNil[B broker](b B, err error) (broker, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

// freeAddress is the usual address of the admin server, or the next one that is free.
func freeAddress() (string, error) {
	for port := 9180; port < 9280; port++ {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", errors.New("no free port for the dashboard between 9180 and 9279")
}

// keep leaves everything running, the shop slowly, until the context ends.
func (d *demo) keep(ctx context.Context) error {
	d.screen.Say(`
Everything continues, with a few orders per second, until Ctrl-C:
  dashboard  http://%s/
  database   mysql -h 127.0.0.1 -P %d -u root %s
  broker     %s, topic %s
  relay      %s status --config %s`,
		d.relay.address, d.database.Port(), schemaName, d.broker.Address(), d.broker.Topic(), d.relay.binary, d.relay.config)
	d.shop.book = nil
	const quietly = 5
	d.shop.Run(ctx, quietly)
	if cause := context.Cause(ctx); !errors.Is(cause, ErrInterrupted) && !errors.Is(cause, context.Canceled) {
		return cause
	}
	d.screen.Say("\nStopped, and everything removed.")
	return nil
}

// close stops what was started, in reverse order, and removes it.
func (d *demo) close() error {
	var errs []error
	if d.relay != nil {
		errs = append(errs, d.relay.Kill())
	}
	if d.broker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		errs = append(errs, d.broker.Close(ctx))
	}
	if d.database != nil {
		errs = append(errs, d.database.Close())
	}
	if d.dir != "" {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	return errors.Join(errs...)
}
