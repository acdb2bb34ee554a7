package outbox

import "time"

// Backoff says how long to wait after a failure: the steps of Schedule, the last one for ever, or without a schedule Base
// doubled with each further failure up to Max. The zero value is the default of the configuration: one second, doubled up
// to two hours.
type Backoff struct {
	Base, Max time.Duration
	Schedule  []time.Duration // when given, Base and Max are not used
}

// Retry says how often a refused message is tried again, and when.
type Retry struct {
	Max     int // further attempts before FAILED; a row's own limit wins
	Backoff Backoff
}

// Override returns r with what is set in o: a Max above 0, and a Schedule.
func (r Retry) Override(o Retry) Retry {
	if o.Max > 0 {
		r.Max = o.Max
	}
	if len(o.Backoff.Schedule) > 0 {
		r.Backoff = o.Backoff
	}
	return r
}

const (
	defaultBackoffBase = time.Second
	defaultBackoffMax  = 2 * time.Hour
)

// Delay is the wait after failure number n, counted from 0, for the random number 0 <= random < 1: within a fifth of the
// nominal step to either side, so that what failed together does not come back together (failure D17). Max bounds the
// nominal step. A negative n counts as 0.
func (b Backoff) Delay(n int, random float64) time.Duration {
	return time.Duration(float64(b.step(max(n, 0))) * (0.8 + 0.4*random))
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
	// Doubling stops at the limit and not by the count: base << n would overflow for rows with hundreds of failures.
	for ; n > 0 && base < limit; n-- {
		if base > limit/2 {
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}
