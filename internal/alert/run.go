package alert

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// lastTimeout bounds the one attempt that is made for what waits at a stop.
const lastTimeout = 2 * time.Second

// Run sends until the context ends. What waits then gets one more attempt of two seconds.
func (a *Alerter) Run(ctx context.Context) {
	a.recall()
	defer a.keep()
	if a.cfg.Webhook == "" {
		a.watch(ctx)
		return
	}
	var watching sync.WaitGroup
	watching.Go(func() { a.watch(ctx) })
	defer watching.Wait()
	var next time.Time // of the digest
	digest := time.NewTimer(time.Hour)
	digest.Stop()
	defer digest.Stop()
	if a.cfg.Digest != "" {
		next = nextDigest(a.cfg.Digest, time.Now())
		digest.Reset(time.Until(next))
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-digest.C:
			// A timer counts the machine's running time, which is not that of the clock on the wall: look again.
			if !time.Now().Before(next) {
				a.deliver(ctx, a.digest)
				next = nextDigest(a.cfg.Digest, time.Now())
			}
			digest.Reset(time.Until(next))
		case <-a.wake:
			outbox.Wait(ctx, gather, nil)
			a.deliver(ctx, a.failures)
			a.deliver(ctx, a.crossings)
			outbox.Wait(ctx, every-gather, nil)
			a.again()
		}
	}
	a.last(ctx)
}

// nextDigest is the next time that the local clock shows a time of day, 15:04.
func nextDigest(clock string, now time.Time) time.Time {
	at, err := time.Parse("15:04", clock)
	if err != nil {
		return now.AddDate(100, 0, 0) // the configuration was validated
	}
	day := time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), 0, 0, now.Location())
	if !day.After(now) {
		day = time.Date(now.Year(), now.Month(), now.Day()+1, at.Hour(), at.Minute(), 0, 0, now.Location())
	}
	return day
}

// again wakes Run when there is more than went into one message.
func (a *Alerter) again() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting)+len(a.crossed) > 0 {
		a.ring()
	}
}

// deliver sends a message until the webhook accepts it or the context ends. compose builds the message again for each attempt,
// from the rows that wait at that time. deliver calls concluded with the result of each attempt.
func (a *Alerter) deliver(ctx context.Context, compose func() (m *message, concluded func(ok bool))) {
	for n := 0; ctx.Err() == nil; n++ {
		m, concluded := compose()
		if m == nil {
			return
		}
		err := a.post(ctx, m)
		concluded(err == nil)
		switch {
		case err == nil && n > 0:
			a.log.Info("the webhook of alerts answers again")
			return
		case err == nil || ctx.Err() != nil:
			return
		case n == 0:
			a.log.Warn("the webhook of alerts cannot be reached; failed messages wait for it, the newest 1000 at most",
				zap.String("webhook", host(a.cfg.Webhook)), zap.Error(err))
		}
		a.errors.Inc()
		outbox.Wait(ctx, pauses.Delay(n, a.cfg.Random()), nil)
	}
}

// last makes one attempt at what waits, beyond the end of the context.
func (a *Alerter) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
	defer cancel()
	if m, concluded := a.failures(); m != nil {
		err := a.post(ctx, m)
		concluded(err == nil)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := len(a.waiting); left > 0 {
		a.dropped.Add(float64(left))
		a.log.Warn("stopped before the webhook got all failed messages; find them in the log and in the tables", zap.Int("messages", left))
	}
}

// failures is the message of the oldest rows that wait; nil when there is none.
func (a *Alerter) failures() (m *message, concluded func(ok bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, lost := min(len(a.waiting), maxRows), a.lost
	if n == 0 {
		return nil, nil
	}
	m = a.message("failed")
	m.Rows, a.waiting = a.waiting[:n:n], a.waiting[n:]
	m.Waiting, m.Dropped = len(a.waiting), lost
	m.Text = failuresText(m)
	return m, func(ok bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if ok {
			a.lost -= lost
			a.sent.Add(float64(n))
			return
		}
		a.waiting = append(m.Rows, a.waiting...)
		a.trim()
	}
}

// digest is the message of the day.
func (a *Alerter) digest() (m *message, concluded func(ok bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := a.day
	m = a.message("digest")
	m.Tables, m.Failed, m.FailedAgain, m.Since, m.Limits = a.cfg.Tables(), &told.Failed, told.Again, &told.Since, sorted(a.over)
	m.Text = digestText(m)
	return m, func(ok bool) {
		if ok {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.day = Day{Since: m.At, Failed: a.day.Failed - told.Failed, Again: a.day.Again - told.Again}
		}
	}
}
