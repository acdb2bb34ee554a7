package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
	"github.com/canal-outbox/canal-outbox/test/servers"
)

// options of a run. The zero value of Flavor, Kafka and RocketMQ is the usual choice.
type options struct {
	Relay    string         // path of the relay's binary
	Flavor   testkit.Flavor // of the database; "": what the machine has
	Kafka    string         // host:port of an external broker; "": an embedded one
	RocketMQ string         // host:port of an external name server
	Duration time.Duration  // how long the application runs
	Rate     int            // business transactions per second
	Keep     bool           // continue after the account until the context ends
}

// The defaults of options, and the minimum duration with time for the faults. Starting and settling take a few seconds more.
const (
	defaultDuration = 35 * time.Second
	defaultRate     = 300
	minDuration     = 10 * time.Second
)

// demo is one run.
type demo struct {
	opts   options
	screen *screen
	fail   context.CancelCauseFunc // ends the run with an error

	dir      string
	database *database
	broker   *broker
	relay    relay.RelayChild
	listen   string // address of the dashboard
	shop     *shop
	book     *book

	killCopies int // see Account
	purged     bool

	closing []func() error // what ends the parts that were started, in order
}

// errInterrupted reports that a signal ended the demo before its account was complete. Everything was removed.
var errInterrupted = errors.New("interrupted: everything the demo had started is stopped and removed")

// run runs the demo and prints to out, a terminal or not. It handles the signals that end a program: the first one ends the demo
// in order, more change nothing. The error says what is wrong, or what could not be done.
func run(ctx context.Context, opts options, out io.Writer) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer holdSignals(func() { fail(errInterrupted) })()
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
			err = errInterrupted
		}
	}
	if d.relay.Child != nil && !errors.Is(err, errInterrupted) {
		d.screen.Say("\nThe last lines of the relay's log:\n%s", d.relay.LogTail(30))
	}
	return err
}

// start creates everything in the order in which it is needed.
func (d *demo) start(ctx context.Context) (err error) {
	d.screen.Say("demo: a shop commits orders, canal-outbox publishes their messages.\n")
	if d.dir, err = os.MkdirTemp("", "canal-outbox-demo-"); err != nil {
		return fmt.Errorf("directory of the demo: %w", err)
	}
	d.closing = append(d.closing, func() error { return os.RemoveAll(d.dir) })
	if err := d.cache(); err != nil {
		return err
	}
	if d.database, err = startDatabase(ctx, d.opts.Flavor, d.screen.Say); err != nil {
		return err
	}
	d.closing = append(d.closing, d.database.Close)
	d.screen.Say("  database   %s on %s, private", d.database.title(), d.database.Addr())
	if d.broker, err = openBroker(ctx, d.opts); err != nil {
		return err
	}
	d.closing = append(d.closing, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return d.broker.close(ctx)
	})
	d.screen.Say("  broker     %s, on %s, topic %s", d.broker.title, d.broker.address, d.broker.topic)
	if d.listen, err = freeAddress(); err != nil {
		return err
	}
	if err := d.startRelay(ctx); err != nil {
		return err
	}
	d.screen.Say("  relay      process %d, dashboard http://%s/", d.relay.PID(), d.listen)
	d.screen.Say("             log in %s", d.relay.Log)
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

// configuration is the relay's file. The sweep runs more often than by default, because the demo is short.
func configuration(source, sink, dir, listen string) string {
	return fmt.Sprintf(`source: {address: %q, user: %q, password: %q}
tables:
  - {name: %q, preset: %q}
sink: %s
checkpoint: {dir: %q}
fallback: {interval: 5s, threshold: 10s, patience: 3s}
admin: {listen: %q}
log: {format: text}
`, source, relayUser, relayPassword, tableName, presetName, sink, filepath.Join(dir, "state"), listen)
}

func (d *demo) startRelay(ctx context.Context) error {
	d.relay = relay.NewChild(d.opts.Relay, d.dir, d.fail)
	d.closing = append(d.closing, func() error { return d.relay.End(syscall.SIGKILL) })
	text := configuration(d.database.Addr(), d.broker.sink, d.dir, d.listen)
	if err := os.WriteFile(d.relay.Config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the relay's configuration: %w", err)
	}
	return d.relay.Start(ctx)
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
		d.listen, d.database.Port(), schemaName, d.broker.address, d.broker.topic, d.opts.Relay, d.relay.Config)
	d.shop.book = nil
	const quietly = 5
	d.shop.Run(ctx, quietly)
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) && !errors.Is(cause, context.Canceled) {
		return cause
	}
	d.screen.Say("\nStopped, and everything removed.")
	return nil
}

// close stops what was started, in reverse order, and removes it.
func (d *demo) close() (err error) {
	for _, end := range slices.Backward(d.closing) {
		err = errors.Join(err, end())
	}
	return err
}
