package outbox

import (
	"cmp"
	"time"
)

// Backoff says how long to wait after a failure: the steps of Schedule, the last one without end, or without a schedule Base
// doubled with each further failure up to Max. The zero value is the default of the configuration: one second, doubled up to two
// hours.
type Backoff struct {
	Base, Max time.Duration
	Schedule  []time.Duration // if set, Base and Max are not used
	// Spread is the fraction of a step by which a wait may differ from it, to either side; 0 is a fifth, below 0 none.
	Spread float64
}

// Retry says how often a refused message is sent, and when. Each send after the first is a retry.
type Retry struct {
	Max     int  // before FAILED; a row's own limit wins
	Sends   bool // Max counts sends; otherwise it counts retries
	Endless bool // rows of the table cannot be FAILED: after Max they wait for the longest step, repeatedly
	Backoff Backoff
}

// Spent reports whether a message with this number of refusals is not sent again.
func (r Retry) Spent(refusals int) bool {
	if r.Sends {
		return refusals >= r.Max
	}
	return refusals > r.Max
}

// Override returns r with what is set in o: a Max above 0, Sends, Endless, a Schedule or, without one, Base and Max of the waits,
// which replace a schedule of r, and a Spread.
func (r Retry) Override(o Retry) Retry {
	if o.Max > 0 {
		r.Max = o.Max
	}
	r.Sends, r.Endless = r.Sends || o.Sends, r.Endless || o.Endless
	switch was := r.Backoff; {
	case len(o.Backoff.Schedule) > 0:
		r.Backoff = o.Backoff
		r.Backoff.Spread = was.Spread
	case o.Backoff.Base > 0 || o.Backoff.Max > 0:
		r.Backoff = Backoff{Base: cmp.Or(o.Backoff.Base, was.Base), Max: cmp.Or(o.Backoff.Max, was.Max), Spread: was.Spread}
	}
	r.Backoff.Spread = cmp.Or(o.Backoff.Spread, r.Backoff.Spread)
	return r
}

const (
	defaultBackoffBase = time.Second
	defaultBackoffMax  = 2 * time.Hour
	defaultSpread      = 0.2
)

// Delay is the wait after failure number n, counted from 0, for the random number 0 <= random < 1: within Spread of the nominal
// step to either side, so that rows that failed together are not retried together (failure D17). Max bounds the nominal step. A
// negative n counts as 0.
func (b Backoff) Delay(n int, random float64) time.Duration {
	step := b.step(max(n, 0))
	if b.Spread < 0 {
		return step
	}
	spread := cmp.Or(b.Spread, defaultSpread)
	return time.Duration(float64(step) * (1 - spread + 2*spread*random))
}

func (b Backoff) step(n int) time.Duration {
	if len(b.Schedule) > 0 {
		return b.Schedule[min(n, len(b.Schedule)-1)]
	}
	base, limit := b.Base, b.Max
	if base <= 0 {
		base = defaultBackoffBase
	}
	if limit <= 0 {
		limit = defaultBackoffMax
	}
	// The loop stops at the limit, not at n: base << n would overflow for rows with hundreds of failures.
	for ; n > 0 && base < limit; n-- {
		if base > limit/2 {
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}
