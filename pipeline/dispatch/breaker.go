package dispatch

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// breaker decides whether the broker as a whole takes messages. It is a pure type: the caller passes the time.
//
//	closed    -> open       after openAfter failures with no answer of the broker between them, or silence of
//	                        silenceLimit while something is in flight
//	open      -> half-open  when a probe, which carries no message, succeeds
//	half-open -> closed     when a message is answered; -> open when it is not
//
// An answer is anything the broker says about a message: a refusal proves that it works. An answered probe does not: a broker may
// answer questions and leave messages without an answer. So half-open lets one message try; a trial that stays silent is followed by
// another message in time, because the silence may be about that one.
type breaker struct {
	state    breakerState
	failures int       // since the last answer
	probes   int       // since it opened: the pauses between them grow
	probeAt  time.Time // state open
	trialAt  time.Time // state half-open: no other message tries before
	again    bool      // the last trial was a message that had been sent before
	freshTo  time.Time // state half-open after such a trial: until then a fresh message goes first
}

type breakerState uint8

const (
	breakerClosed breakerState = iota
	breakerOpen
	breakerHalfOpen
	leaseNotHeld // only shown, in State: no breaker is in it
)

// LeaseNotHeld is State.Breaker while this relay may not publish.
const LeaseNotHeld = "lease-not-held"

// String returns the name shown in status and logs.
func (s breakerState) String() string {
	return [...]string{"closed", "open", "half-open", LeaseNotHeld}[s]
}

const (
	openAfter    = 5
	silenceLimit = 5 * time.Second
	trialPause   = 5 * time.Second // between trials that are not answered
	freshFor     = time.Second     // for which a fresh message goes first
)

// probePauses are between probes, and between probe and probe in half-open states that failed.
var probePauses = outbox.Backoff{Base: 250 * time.Millisecond, Max: 5 * time.Second}

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

// mayTry reports whether a message may be the trial of a half-open breaker.
func (b *breaker) mayTry(now time.Time) bool {
	return b.state == breakerHalfOpen && !now.Before(b.trialAt)
}

// freshFirst reports whether the trial is to be a fresh message, if there is one within a second. After a message that had
// been sent before stayed without an answer once more, the silence may be about it: it must not be the trial for ever.
func (b *breaker) freshFirst(now time.Time) bool {
	if !b.again {
		return false
	}
	if b.freshTo.IsZero() {
		b.freshTo = now.Add(freshFor)
	}
	return now.Before(b.freshTo)
}

// launched records that a message is handed to the sink, a fresh one or one that had been sent before.
func (b *breaker) launched(now time.Time, again bool) {
	if b.state == breakerHalfOpen {
		b.trialAt, b.again, b.freshTo = now.Add(trialPause), again, time.Time{}
	}
}

// undecided records a trial that says nothing about the broker: another message may try.
func (b *breaker) undecided() { b.trialAt = time.Time{} }

// open opens the breaker. It reports whether it was closed.
func (b *breaker) open(now time.Time) bool {
	if b.state == breakerOpen {
		return false
	}
	fresh := b.state == breakerClosed
	b.state = breakerOpen
	b.pause(now)
	return fresh
}

func (b *breaker) pause(now time.Time) {
	b.probeAt = now.Add(probePauses.Delay(b.probes, 0.5))
	b.probes++
}

// probed records the outcome of a probe.
func (b *breaker) probed(ok bool, now time.Time) {
	switch {
	case b.state != breakerOpen:
	case ok:
		b.state, b.trialAt = breakerHalfOpen, time.Time{}
	default:
		b.pause(now)
	}
}
