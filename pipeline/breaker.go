package pipeline

import "time"

// breaker tells whether the broker as a whole takes messages. It is a pure type: the caller passes the time.
//
//	closed    -> open       after openAfter failures with no answer of the broker between them, or silence of
//	                        silenceLimit while something is in flight
//	open      -> half-open  when a probe, which carries no message, succeeds
//	half-open -> closed     when a message is answered; -> open when it is not
//
// An answer is anything the broker says about a message: a refusal proves that it works.
type breaker struct {
	state    breakerState
	failures int           // since the last answer
	wait     time.Duration // before the next probe
	probeAt  time.Time     // state open
	trial    bool          // state half-open: a message is on its way
}

type breakerState uint8

const (
	breakerClosed breakerState = iota
	breakerOpen
	breakerHalfOpen
)

// String returns the name shown in status and logs.
func (s breakerState) String() string { return [...]string{"closed", "open", "half-open"}[s] }

const (
	openAfter     = 5
	silenceLimit  = 5 * time.Second
	firstProbe    = 250 * time.Millisecond
	maxProbeDelay = 5 * time.Second
)

// answered records that the broker answered a message. It reports whether that closed the breaker.
func (b *breaker) answered() (closed bool) {
	closed = b.state != breakerClosed
	*b = breaker{}
	return closed
}

// failed records a message that got no answer or that the broker was not there for. It reports whether that opened it.
func (b *breaker) failed(now time.Time) (opened bool) {
	b.failures++
	switch {
	case b.state == breakerHalfOpen, b.state == breakerClosed && b.failures >= openAfter:
		return b.open(now)
	}
	return false
}

// open opens the breaker, with a longer wait than last time when it was half-open.
func (b *breaker) open(now time.Time) bool {
	if b.state == breakerOpen {
		return false
	}
	fresh := b.state == breakerClosed
	if b.wait == 0 {
		b.wait = firstProbe
	} else {
		b.wait = min(2*b.wait, maxProbeDelay)
	}
	b.state, b.probeAt, b.trial = breakerOpen, now.Add(b.wait), false
	return fresh
}

// probed records the outcome of a probe.
func (b *breaker) probed(ok bool, now time.Time) {
	if b.state != breakerOpen {
		return
	}
	if ok {
		b.state, b.trial = breakerHalfOpen, false
		return
	}
	b.wait = min(2*b.wait, maxProbeDelay)
	b.probeAt = now.Add(b.wait)
}
