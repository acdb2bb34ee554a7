package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

const (
	tick         = 50 * time.Millisecond // while something waits
	idleTick     = time.Second           // while nothing does
	probeTimeout = 3 * time.Second
)

// Run does what time demands until the context ends: second sends, and probes of an open breaker and of suspended topics.
func (d *Dispatch) Run(ctx context.Context) error {
	if len(d.cfg.Ordered) > 0 {
		var gate sync.WaitGroup
		gate.Go(func() { d.keepOrder(ctx) })
		defer gate.Wait()
	}
	timer := time.NewTimer(idleTick)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-d.wake:
		}
		d.watch(time.Now())
		d.probe(ctx)
		d.resend(time.Now())
		d.probeTopics(ctx)
		timer.Reset(d.pace())
	}
}

func (d *Dispatch) pace() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.retry)+len(d.scouts)+len(d.held) > 0 || d.breaker.state != breakerClosed || len(d.suspended) > 0 {
		return tick
	}
	return idleTick
}

// watch opens the breaker when the broker is silent: the client's own promise may take much longer than that.
func (d *Dispatch) watch(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inFlight > 0 && d.breaker.state == breakerClosed && now.Sub(d.quietSince) > silenceLimit {
		d.breaker.open(now)
		d.trouble = "no answer to a message since " + d.unansweredSince.Format(time.TimeOnly)
		d.broadcast() // a stop does not wait any longer
		d.log.Warn(fmt.Sprintf("no answer from the broker for %v; sending paused, no retry counted", silenceLimit), zap.Int("in_flight", d.inFlight))
	}
}

// probe asks the sink, without a message, whether an open breaker may try one.
func (d *Dispatch) probe(ctx context.Context) {
	d.mu.Lock()
	due := d.breaker.state == breakerOpen && !time.Now().Before(d.breaker.probeAt)
	d.mu.Unlock()
	if !due {
		return
	}
	probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
	err := d.sink.Probe(probeCtx)
	cancel()
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.breaker.probed(err == nil, now)
	if err != nil {
		d.trouble = err.Error()
	}
}

// untried closes a half-open breaker when no row is left that could be the trial or whose answer is due: the next message is the
// trial. This is also the case after the last trial, if a part of the cluster left it without an answer: it is a scout (probe
// row) now, and scouts and sweeps wait for the breaker. Callers hold mu.
func (d *Dispatch) untried(now time.Time) {
	if d.breaker.mayTry(now) && len(d.retry)+d.inFlight == 0 {
		d.breaker.answered()
		d.trouble = ""
		d.log.Info("the broker answers again")
		d.closed()
	}
}

// resend hands messages of the retry buffer to the sink again: all that are due while the breaker is closed, one while it is
// half-open, the oldest first, which puts a failed trial at the end of the line. The reader is woken when its fresh message may be the
// trial. A row that must not go before another one of its key any more is left to the sweep, and the others go.
func (d *Dispatch) resend(now time.Time) {
	var ready []*outbox.Message
	d.mu.Lock()
	d.untried(now)
	switch {
	case d.breaker.mayTry(now) && (len(d.retry) == 0 || d.breaker.freshFirst(now)):
		d.broadcast()
	case d.breaker.mayTry(now):
		for len(d.retry) > 0 && len(ready) == 0 {
			e := d.retry[0]
			d.retry = slices.Delete(d.retry, 0, 1)
			d.retryB -= e.Size
			if d.mayGoAgain(e, now) {
				ready = append(ready, d.launch(e, now))
			}
		}
	case d.breaker.state == breakerClosed:
		ready = append(d.sendScouts(now), d.sendHeld(now)...)
		d.retry = slices.DeleteFunc(d.retry, func(e *tracker.Entry) bool {
			if now.Before(e.Sends.RetryAt) {
				return false
			}
			d.retryB -= e.Size
			if d.mayGoAgain(e, now) {
				ready = append(ready, d.launch(e, now))
			}
			return true
		})
	}
	ready, released := d.out.take(ready, nil)
	d.unlock()
	d.send(ready)
	if len(released) > 0 {
		d.acks.Add(released)
	}
}
