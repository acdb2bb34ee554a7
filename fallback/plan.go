package fallback

import "time"

// triggerGap is the minimum time between triggered sweeps, and the time until a trigger's second sweep.
const triggerGap = time.Second

// plan decides when the next sweep, or the next look of timers, is due. It is a pure type: the caller passes the time. The zero
// plan is due at once.
type plan struct {
	next  time.Time // the next sweep with the threshold
	zero  time.Time // the next sweep without; the zero time when none is needed
	last  time.Time // start of the last sweep without
	again bool      // a trigger came after it began: its rows may need another sweep to be visible
	now   bool      // a full sweep is needed: triggerGap does not delay zero
	hold  time.Time // no sweep before: the database or the broker is away
}

func (p *plan) trigger(now time.Time) {
	at := p.last.Add(triggerGap)
	if at.Before(now) {
		at = now
	}
	if p.zero.IsZero() || at.Before(p.zero) {
		p.zero = at
	}
	p.again = true
}

func (p *plan) full() { p.now, p.again = true, true }

// wait returns the time until a sweep is due; 0 or less: now.
func (p *plan) wait(now time.Time) time.Duration {
	at := p.next
	if !p.zero.IsZero() && p.zero.Before(at) {
		at = p.zero
	}
	if p.now {
		at = now
	}
	if at.Before(p.hold) {
		at = p.hold
	}
	return at.Sub(now)
}

// begin reports whether the sweep that begins now is one without threshold.
func (p *plan) begin(now time.Time) (zero bool) {
	if !p.now && (p.zero.IsZero() || p.zero.After(now)) {
		return false
	}
	p.last, p.zero, p.now = now, time.Time{}, false
	if p.again {
		p.zero, p.again = now.Add(triggerGap), false
	}
	return true
}

// done plans the next sweep after a complete one.
func (p *plan) done(now time.Time, interval time.Duration) {
	p.next, p.hold = now.Add(interval), time.Time{}
}

// failed plans the attempt after an incomplete sweep: at the next trigger, at the latest after delay; one without threshold stays without. With
// hold, no trigger makes it come earlier.
func (p *plan) failed(now time.Time, zero, hold bool, delay time.Duration) {
	p.next, p.hold = now.Add(delay), time.Time{}
	if hold {
		p.hold = p.next
	}
	if zero {
		p.zero, p.again = p.next, true
	}
}
