package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// Options of Run.
type Options struct {
	Orders, Relay string // binaries
	Database      string // mysql or mariadb
	Broker        string // kafka, rocketmq, or embedded
	Duration      time.Duration
	PayWithin     time.Duration
	Rate          int // requests for an order per second
}

// story is one run.
type story struct {
	opts    Options
	say     func(format string, args ...any)
	fail    func(error)
	dir     string
	servers servers
	alerts  alerts
	parts   map[string]*relay.Child // the relay among them
	relay   relay.RelayChild

	poison struct{ letters, failed int } // what the account must find of them
	// timeouts counts delayed messages that the relay cannot publish.
	timeouts int
	wrong    int // number of writes of a wrong stock
	purges   int
	gaps     int

	republished bool
}

// patience is how long the story waits without progress. It bounds a failure, not the speed of the machine.
const patience = 3 * time.Minute

// Run runs the story and prints it to out.
func Run(ctx context.Context, opts Options, out io.Writer) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	began := time.Now()
	s := &story{opts: opts, fail: fail, parts: map[string]*relay.Child{}}
	s.say = func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	s.alerts.open()
	defer func() { err = errors.Join(err, s.close()) }()
	if s.dir, err = os.MkdirTemp("", "orders-"); err != nil {
		return err
	}
	if err := s.run(ctx, out); err != nil {
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, context.Canceled):
			return errors.New("interrupted: everything is stopped and removed")
		case cause != nil:
			err = cause
		}
		return fmt.Errorf("%w%s", err, s.logs())
	}
	return nil
}

func (s *story) run(ctx context.Context, out io.Writer) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.work(ctx); err != nil {
		return err
	}
	a, err := s.settle(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThe account%55s %8s\n", "", "")
	for _, l := range a.lines {
		fmt.Fprintln(out, l)
	}
	for _, note := range a.notes {
		fmt.Fprintln(out, " ", note)
	}
	return a.Err()
}

// start starts everything, the shop last.
func (s *story) start(ctx context.Context) error {
	s.say("starting %s, Redis and %s", s.opts.Database, s.opts.Broker)
	if err := s.servers.start(ctx, s.opts); err != nil {
		return err
	}
	s.makeParts()
	if err := os.WriteFile(s.relay.Config, []byte(s.relayConfig()), 0o600); err != nil {
		return err
	}
	if err := s.relay.Start(ctx); err != nil {
		return err
	}
	for _, name := range append([]string{"check"}, append(consumerNames, "shop")...) {
		if err := s.parts[name].Start(); err != nil {
			return err
		}
	}
	s.say("relay, consumers, check and shop are at work: %d requests a second for %v", s.opts.Rate, s.opts.Duration)
	return nil
}

// work runs the shop for its time, with the faults one after the other, and closes it.
func (s *story) work(ctx context.Context) error {
	open, began := s.opts.Duration, time.Now()
	for i, fault := range faults {
		at := began.Add(open * time.Duration(i+1) / time.Duration(len(faults)+2))
		if err := relay.Pause(ctx, time.Until(at)); err != nil {
			return err
		}
		if err := fault(ctx, s); err != nil {
			return err
		}
	}
	if err := relay.Pause(ctx, time.Until(began.Add(open))); err != nil {
		return err
	}
	s.say("the shop closes; unpaid orders wait for their time")
	return s.parts["shop"].End(syscall.SIGTERM)
}

// settle waits until the account is right and returns it; when it has not changed for a while, it returns it as it is.
func (s *story) settle(ctx context.Context) (account, error) {
	last, moved := "", time.Now()
	for {
		a, err := s.look(ctx)
		if now := fmt.Sprint(a.lines); now != last {
			last, moved = now, time.Now()
		}
		if err == nil && a.Err() == nil || ctx.Err() == nil && time.Since(moved) > s.opts.PayWithin+patience {
			return a, err
		}
		if err := relay.Pause(ctx, 250*time.Millisecond); err != nil {
			return a, err
		}
	}
}

// look makes the account, with the relay's own figures.
func (s *story) look(ctx context.Context) (account, error) {
	gaps, err := s.relay.Gaps(ctx)
	if err != nil {
		return account{}, err
	}
	s.gaps = gaps[string(outbox.GapPurged)]
	return s.account(ctx)
}

// logs returns the last lines of all processes.
func (s *story) logs() string {
	text := ""
	for name, p := range s.parts {
		text += fmt.Sprintf("\n--- %s\n%s", name, p.LogTail(8))
	}
	return text
}

// close stops what was started, and removes it.
func (s *story) close() error {
	var errs []error
	for _, p := range s.parts {
		errs = append(errs, p.End(syscall.SIGKILL))
	}
	errs = append(errs, s.servers.close())
	s.alerts.Close()
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
