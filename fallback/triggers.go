package fallback

import (
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Triggers holds the sweeps that others ask for, and the timers of rows that become due. It is made before all other parts, so that each
// of them can be given it; a Sweeper carries them out. Its methods never block and may be called at any time, from any goroutine.
type Triggers struct {
	wake   chan struct{}      // holds one token when there is a new trigger
	timers map[string]*timers // by table; the map is not changed

	mu        sync.Mutex
	triggered bool
	full      bool
}

// NewTriggers makes an empty list for a Sweeper with the same configuration.
func NewTriggers(cfg Config) *Triggers {
	cfg.setDefaults()
	w := &Triggers{wake: make(chan struct{}, 1), timers: map[string]*timers{}}
	for _, name := range cfg.Tables {
		w.timers[name] = newTimers(cfg.Timers, 2*cfg.lookEvery())
	}
	return w
}

// Trigger asks for a sweep without threshold, at once and once more a second later, when rows of transactions that are in the
// log already have become visible. Many triggers cause at most one sweep a second.
func (w *Triggers) Trigger() { w.add(false) }

// Full asks for a sweep without threshold that begins after this call and is repeated until one was complete, and, like Trigger, for
// one more a second later: after a gap or a failover, and at each start.
func (w *Triggers) Full() { w.add(true) }

// DueIn tells of a row that is left to the sweep and becomes due after d, or is to be looked at then: it is published at its time, as
// the table shows it. The log has shown the row. One whose time is far away is found in the table when it has come closer.
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
	w.triggered, w.full = false, false
}
