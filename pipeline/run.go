package pipeline

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

const (
	tick         = 50 * time.Millisecond // while something waits
	idleTick     = time.Second           // while nothing does
	probeTimeout = 3 * time.Second
	firstSuspend = time.Second
	maxSuspend   = time.Minute
	maxTopics    = 1000 // remembered per topic; beyond, topics are treated alike
)

// suspendedTopic is a topic whose rows are left alone until it exists or may be written.
type suspendedTopic struct {
	until  time.Time
	wait   time.Duration
	reason string
}

// Run does what time demands until the context ends: second sends, probes of an open breaker and of suspended topics, and the
// check of catch-up rows when the log has fallen silent before the window's end.
func (p *Pipeline) Run(ctx context.Context) error {
	window := make(chan struct{})
	go func() {
		defer close(window)
		p.watchWindow(ctx)
	}()
	defer func() { <-window }()
	timer := time.NewTimer(idleTick)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.wake:
		}
		p.watch(time.Now())
		p.probe(ctx)
		p.resend(time.Now())
		p.probeTopics(ctx)
		timer.Reset(p.pace())
	}
}

func (p *Pipeline) pace() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.heldBack) > 0 || p.breaker.state != breakerClosed || len(p.suspended) > 0 {
		return tick
	}
	return idleTick
}

// watch opens the breaker when the broker is silent: the client's own promise may take much longer than that.
func (p *Pipeline) watch(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight > 0 && p.breaker.state == breakerClosed && now.Sub(p.quietSince) > silenceLimit {
		p.breaker.open(now)
		p.trouble = "unknown: no answer from the broker for " + silenceLimit.String()
		p.log.Warn("the broker is silent: waiting for it, the budget of no row is touched", zap.Int("in_flight", p.inFlight))
	}
}

// probe asks the sink, without a message, whether an open breaker may try again.
func (p *Pipeline) probe(ctx context.Context) {
	p.mu.Lock()
	due := p.breaker.state == breakerOpen && !time.Now().Before(p.breaker.probeAt)
	p.mu.Unlock()
	if !due {
		return
	}
	probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
	err := p.sink.Probe(probeCtx)
	cancel()
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breaker.probed(err == nil, now)
	if err != nil {
		p.trouble = err.Error()
		return
	}
	if len(p.heldBack) == 0 && p.breaker.state == breakerHalfOpen { // nothing to try: the next message is the trial
		p.breaker.answered()
		p.trouble, p.quietSince = "", now
		p.log.Info("the broker answers again")
		p.broadcast()
	}
}

// resend hands held messages to the sink again: all that are due while the breaker is closed, one while it is half-open, the
// oldest first, which puts a failed trial at the end of the line.
func (p *Pipeline) resend(now time.Time) {
	var ready []*outbox.Message
	p.mu.Lock()
	switch p.breaker.state {
	case breakerHalfOpen:
		if !p.breaker.trial && len(p.heldBack) > 0 {
			p.breaker.trial = true
			e := p.heldBack[0]
			p.heldBack = slices.Delete(p.heldBack, 0, 1)
			p.heldB -= e.size
			p.launch(e, now)
			ready = append(ready, e.message)
		}
	case breakerClosed:
		p.heldBack = slices.DeleteFunc(p.heldBack, func(e *entry) bool {
			if now.Before(e.retryAt) {
				return false
			}
			p.heldB -= e.size
			p.launch(e, now)
			ready = append(ready, e.message)
			return true
		})
	}
	p.mu.Unlock()
	p.send(ready)
}

// suspend leaves a topic alone for a while. Callers hold mu.
func (p *Pipeline) suspend(topic, reason string, now time.Time) {
	t := p.suspended[topic]
	if t == nil {
		if len(p.suspended) >= maxTopics {
			return
		}
		t = &suspendedTopic{wait: firstSuspend}
		p.suspended[topic] = t
		p.log.Warn("topic suspended: its rows stay PENDING, cost no budget, and flow when it works", zap.String("topic", topic), zap.String("reason", reason))
	}
	t.reason, t.until = reason, now.Add(t.wait)
	p.kick()
}

func (p *Pipeline) topicSuspended(topic string) bool {
	return len(p.suspended) > 0 && p.suspended[topic] != nil
}

// resume lets a topic flow again and asks for a sweep of what was deferred. Callers hold mu.
func (p *Pipeline) resume(topic string) {
	if p.suspended[topic] == nil {
		return
	}
	delete(p.suspended, topic)
	p.activity.Add(1)
	p.log.Info("topic works again", zap.String("topic", topic))
	if p.cfg.Trigger != nil {
		p.cfg.Trigger()
	}
}

// probeTopics asks the broker about suspended topics whose time has come.
func (p *Pipeline) probeTopics(ctx context.Context) {
	now := time.Now()
	var due []string
	p.mu.Lock()
	for topic, t := range p.suspended {
		if !now.Before(t.until) {
			due = append(due, topic)
		}
	}
	p.mu.Unlock()
	if len(due) == 0 {
		return
	}
	slices.Sort(due)
	probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
	faults, err := p.sink.Topics(probeCtx, due)
	cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, topic := range due {
		if err == nil && faults[topic] == nil {
			p.resume(topic)
		} else if t := p.suspended[topic]; t != nil {
			t.wait = min(2*t.wait, maxSuspend)
			t.until = time.Now().Add(t.wait)
		}
	}
}
