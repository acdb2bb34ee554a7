package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/test/relay"
)

// work runs the shop with the faults, waits until everything has settled and makes the account.
func (d *demo) work(ctx context.Context) (Account, error) {
	own, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait() // after cancel
	defer cancel()
	running.Go(func() {
		if err := d.broker.follow(own, d.book.Arrived); err != nil {
			d.fail(err)
		}
	})
	running.Go(func() { d.watch(own) })
	if err := d.trade(ctx); err != nil {
		return Account{}, err
	}
	d.screen.Say("The shop is closed; waiting until everything is published and every row is SENT ...")
	if err := d.settle(ctx); err != nil {
		return Account{}, err
	}
	return d.account(ctx)
}

// trade runs the application for its time, with the faults in it.
func (d *demo) trade(ctx context.Context) error {
	d.shop = &shop{db: d.database.db, topic: d.broker.topic, book: d.book, fail: d.fail}
	open, closeShop := context.WithCancel(ctx)
	var shopping sync.WaitGroup
	defer shopping.Wait() // after closeShop
	defer closeShop()
	began := time.Now()
	shopping.Go(func() { d.shop.Run(open, d.opts.Rate) })
	if err := d.faults(ctx, began); err != nil {
		return err
	}
	return relay.Pause(ctx, time.Until(began.Add(d.opts.Duration)))
}

// poll is the pause between two looks at a condition.
const poll = 20 * time.Millisecond

// patience is how long the demo waits without progress. It is longer than a pass of the sweep and the relay's back-off after an outage,
// also on a machine that is busy with other work.
const patience = 3 * time.Minute

// await waits until done, as long as progress changes within patience. It returns false when progress has stopped. progress must
// measure what is awaited: copies, or newer messages, would keep it waiting for a lost one without end.
func (d *demo) await(ctx context.Context, done func() (bool, error), progress func() int) (bool, error) {
	last, since := progress(), time.Now()
	for {
		ok, err := done()
		if ok || err != nil {
			return ok, err
		}
		if now := progress(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) > patience {
			return false, nil
		}
		if err := relay.Pause(ctx, poll); err != nil {
			return false, err
		}
	}
}

// settle waits until the account can be made. Messages left behind are no error here: the account reports them.
func (d *demo) settle(ctx context.Context) error {
	unpublished := func() int { return d.book.Waiting(time.Now()) }
	if _, err := d.await(ctx, func() (bool, error) { return unpublished() == 0, nil }, unpublished); err != nil {
		return err
	}
	unsent := 0
	_, err := d.await(ctx, func() (bool, error) {
		rows, err := d.database.rows(ctx)
		unsent = Account{Rows: rows}.total() - rows[sentStatus]
		return err == nil && unsent == 0, err
	}, func() int { return unsent })
	return err
}

// account makes the account of all that the broker has.
func (d *demo) account(ctx context.Context) (Account, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	records, err := d.broker.read(ctx)
	if err != nil {
		return Account{}, err
	}
	a, err := d.book.Account(ctx, records, d.database.has)
	if err != nil {
		return Account{}, err
	}
	a.GapWanted, a.KillCopies = d.purged, d.killCopies
	var errs [3]error
	a.Rows, errs[0] = d.database.rows(ctx)
	a.Unsent, errs[1] = d.database.unsent(ctx)
	a.Gaps, errs[2] = d.relay.Gaps(ctx)
	return a, errors.Join(errs[:]...)
}

// header and the lines of watch have the same columns.
const (
	header   = " time committed published  rate/s      p50      p99     lag   unsent     SENT"
	progress = "%4ds %9s %9s %7s %8s %8s %7s %8s %8s"
)

// watch shows the progress once a second until ctx ends.
func (d *demo) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	began, before := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			d.screen.Keep()
			return
		case <-tick.C:
		}
		committed, published, took := d.book.Look()
		unsent, sent := d.states(ctx)
		d.screen.Progress(header, fmt.Sprintf(progress, int(time.Since(began).Seconds()+0.5), count(committed), count(published),
			count(published-before), took.at(0.5), took.at(0.99), d.lag(ctx), unsent, sent))
		before = published
	}
}

// states counts rows that are SENT and that are not.
func (d *demo) states(ctx context.Context) (unsent, sent string) {
	rows, err := d.database.rows(ctx)
	if err != nil {
		return "?", "?" // shown again in a second; the account reports a lasting error
	}
	text := count(Account{Rows: rows}.total() - rows[sentStatus])
	if failed := rows["FAILED"]; failed > 0 {
		text = fmt.Sprintf("%s!%s", text, count(failed))
	}
	return text, count(rows[sentStatus])
}

// lag returns how far the relay is behind the binlog.
func (d *demo) lag(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := d.relay.Client.Status(ctx)
	switch {
	case err != nil:
		return "down"
	case status.Source.LagSeconds == nil:
		return "-"
	}
	return fmt.Sprintf("%.1fs", *status.Source.LagSeconds)
}

// show prints the account.
func (d *demo) show(a Account) {
	d.screen.Keep()
	completion := func(holds bool) string {
		if holds {
			return "ok"
		}
		return "WRONG"
	}
	line := func(what string, n int, note string) { d.screen.Say("  %-34s %9s  %s", what, count(n), note) }
	d.screen.Say("\nThe account")
	line("messages committed by the shop", a.Committed, fmt.Sprintf("and %s transactions rolled back", count(a.RolledBack)))
	line("published, each counted once", a.Published, completion(a.Published == a.Committed))
	line("copies beyond the first", a.Copies, fmt.Sprintf("allowed; %s of them after the SIGKILL", count(a.KillCopies)))
	if a.Copies > 0 {
		d.screen.Say("      A killed relay cannot note what the broker just took, so it sends that again; every copy\n" +
			"      carries the same message id, by which consumers drop it.")
	}
	line("missing", len(a.Missing), completion(len(a.Missing) == 0))
	line("published but never committed", len(a.Invented), completion(len(a.Invented) == 0))
	line("published with wrong content", len(a.Altered), completion(len(a.Altered) == 0))
	line("rows SENT in the table", a.Rows[sentStatus], fmt.Sprintf("%s, of %s", completion(a.Rows[sentStatus] == a.total()), count(a.total())))
	line("failed transactions of the shop", len(a.Failures), completion(len(a.Failures) == 0))
	if a.GapWanted {
		line("gap recorded after the purge", a.Gaps[purged], completion(a.Gaps[purged] > 0))
	}
	quiet := d.book.Quiet()
	d.screen.Say("\nBefore the first fault a consumer had a message %s (p50), %s (p99) after the shop sent COMMIT.",
		quiet.at(0.5), quiet.at(0.99))
	if a.Err() == nil {
		d.screen.Say("The account holds: nothing lost, nothing invented.")
	}
}
