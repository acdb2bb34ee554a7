package main

import (
	"context"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/test/relay"
)

// fault is a deliberate fault at a fraction of the demo's time.
type fault struct {
	at float64
	do func(ctx context.Context) error
}

// faults runs them one after the other.
func (d *demo) faults(ctx context.Context, began time.Time) error {
	for _, f := range []fault{{0.2, d.killRelay}, {0.4, d.stopBroker}, {0.65, d.purgeBinlog}} {
		at := began.Add(time.Duration(f.at * float64(d.opts.Duration)))
		if err := relay.Pause(ctx, time.Until(at)); err != nil {
			return err
		}
		d.book.Disturb()
		if err := f.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// downtime is the duration of an outage.
func (d *demo) downtime() time.Duration { return min(d.opts.Duration/8, 5*time.Second) }

// killRelay is fault 1.
func (d *demo) killRelay(ctx context.Context) error {
	pid, copies := d.relay.PID(), d.book.Copies()
	if err := d.relay.End(syscall.SIGKILL); err != nil {
		return err
	}
	d.screen.Say("\n1/3 The relay (process %d) was killed with SIGKILL. The shop continues.", pid)
	if err := relay.Pause(ctx, d.downtime()/3); err != nil {
		return err
	}
	err := d.restart(ctx)
	d.killCopies = d.book.Copies() - copies
	return err
}

// restart starts the relay and waits until it has caught up.
func (d *demo) restart(ctx context.Context) error {
	behind, began := d.book.Waiting(time.Now()), time.Now()
	if err := d.relay.Start(ctx); err != nil {
		return err
	}
	d.screen.Say("    The relay was started again (process %d); %s messages had waited.", d.relay.PID(), count(behind))
	return d.caughtUp(ctx, began)
}

// caughtUp waits until all messages committed before now are published. Messages left behind are no error here: the account names
// them.
func (d *demo) caughtUp(ctx context.Context, began time.Time) error {
	now := time.Now()
	waiting := func() int { return d.book.Waiting(now) }
	ok, err := d.await(ctx, func() (bool, error) { return waiting() == 0, nil }, waiting)
	switch {
	case err != nil:
		return err
	case ok:
		d.screen.Say("    All of them are published, %s later.", brief(time.Since(began)))
	default:
		d.screen.Say("    %s of them are still not published, and for %s none was. The demo continues.", count(waiting()), brief(patience))
	}
	return nil
}

// stopBroker is fault 2.
func (d *demo) stopBroker(ctx context.Context) error {
	if d.broker.stop == nil {
		d.screen.Say("\n2/3 Skipped: the broker is yours, the demo does not stop it.")
		return nil
	}
	d.broker.stop()
	away := d.downtime()
	d.screen.Say("\n2/3 The broker is away for %s: its connections are cut and its port is closed.", brief(away))
	if err := relay.Pause(ctx, away); err != nil {
		return err
	}
	behind, began := d.book.Waiting(time.Now()), time.Now()
	if err := d.broker.start(); err != nil {
		return err
	}
	d.screen.Say("    The broker is back; %s messages had waited.", count(behind))
	return d.caughtUp(ctx, began)
}

// purgeBinlog is fault 3.
func (d *demo) purgeBinlog(ctx context.Context) error {
	if err := d.relay.End(syscall.SIGTERM); err != nil {
		return err
	}
	d.screen.Say("\n3/3 The relay was stopped in order. Meanwhile the server deletes binlogs that the relay has not read.")
	if err := relay.Pause(ctx, d.downtime()/2); err != nil {
		return err
	}
	if err := d.database.Purge(ctx); err != nil {
		return err
	}
	d.purged = true
	if err := relay.Pause(ctx, d.downtime()/2); err != nil {
		return err
	}
	return d.restart(ctx)
}
