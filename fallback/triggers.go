package fallback

import (
	"sync"
	"time"
)

// Triggers holds the sweeps that others ask for. It is made before all other parts, so that each of them can be given it; a Sweeper
// carries them out. Its methods never block and may be called at any time, from any goroutine.
type Triggers struct {
	interval time.Duration // between sweeps
	wake     chan struct{} // holds one token when there is a new trigger

	mu        sync.Mutex
	triggered bool
	full      bool
	looks     looks // of SweepIn
}

// NewTriggers makes an empty list for a Sweeper with the same configuration.
func NewTriggers(cfg Config) *Triggers {
	cfg.setDefaults()
	return &Triggers{interval: cfg.Interval, wake: make(chan struct{}, 1)}
}

// Trigger asks for a sweep without threshold, at once and once more a second later, when rows of transactions that are in the
// log already have become visible. Many triggers cause at most one sweep a second.
func (w *Triggers) Trigger() { w.add(func() { w.triggered = true }) }

// Full asks for a sweep without threshold that begins after this call and is repeated until one was complete, and, like Trigger, for
// one more a second later: after a gap, and at each start.
func (w *Triggers) Full() { w.add(func() { w.full = true }) }

// SweepIn asks for a sweep after d, for a row that becomes due then or later. A sweep sees a row that becomes due within an
// interval only if the row stands in the table when the sweep begins; one that was written after the last sweep and becomes due
// before the next would be late by up to an interval.
func (w *Triggers) SweepIn(d time.Duration) {
	if d >= w.interval {
		return // the next sweep comes first, sees the row and plans for its due time
	}
	at := time.Now().Add(d)
	w.add(func() { w.looks.add(at) })
}

func (w *Triggers) add(set func()) {
	w.mu.Lock()
	set()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// tell enters the triggers into a plan and forgets them.
func (w *Triggers) tell(p *plan, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.triggered {
		p.trigger(now)
	}
	if w.full {
		p.full()
	}
	for _, at := range w.looks {
		p.looks.add(at)
	}
	w.triggered, w.full, w.looks = false, false, w.looks[:0]
}
