package fallback

import (
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Triggers collects requests for sweeps, and the timers of rows that become due. It is created before all other parts that use
// it; a Sweeper serves it. Its methods never block and may be called at any time, from any goroutine.
type Triggers struct {
	wake   chan struct{}      // holds a token when there is a new trigger
	timers map[string]*timers // by table; the map is not changed

	mu        sync.Mutex
	triggered bool
	full      bool
}

// NewTriggers returns an empty list for a Sweeper with the same configuration.
func NewTriggers(cfg Config) *Triggers {
	cfg.setDefaults()
	w := &Triggers{wake: make(chan struct{}, 1), timers: map[string]*timers{}}
	for _, name := range cfg.Tables {
		w.timers[name] = newTimers(cfg.Timers, 2*cfg.lookEvery())
	}
	return w
}

// Trigger requests a sweep without threshold at once, and another one a second later, when rows of transactions in the log have
// become visible. Many triggers cause at most one sweep per second.
func (w *Triggers) Trigger() { w.add(false) }

// Full requests a sweep without threshold that begins after this call and is repeated until one was complete, and, like Trigger,
// another one a second later: after a gap or a failover, and at each start.
func (w *Triggers) Full() { w.add(true) }

// DueIn adds a row that is left to the sweep and becomes due after d, or must be checked then: it is published at its time, in
// its state in the table. The row is in the log. A look at the table finds rows with distant due times later.
func (w *Triggers) DueIn(row outbox.Identity, d time.Duration) {
	if t := w.timers[row.Table]; t != nil && d <= t.ahead {
		t.add(row, time.Now().Add(d), nil)
	}
}

func (w *Triggers) add(full bool) {
	w.mu.Lock()
	w.triggered, w.full = w.triggered || !full, w.full || full
	w.mu.Unlock()
	now := time.Now()
	for _, t := range w.timers {
		t.trigger(now, full)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// pending reports whether a sweep is requested.
func (w *Triggers) pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.triggered || w.full
}

// apply adds the triggers to a plan and clears them.
func (w *Triggers) apply(p *plan, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.triggered {
		p.trigger(now)
	}
	if w.full {
		p.full()
	}
	w.triggered, w.full = false, false
}
