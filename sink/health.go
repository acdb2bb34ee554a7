package sink

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// How long a part may give no sign of life, while others take messages all the time, until nothing more is handed to the client
// for it; and how long when the room for messages is short. A client may keep a message for its delivery timeout, or for ever when
// it is on the wire: at that rate one dead part would fill all the room there is.
const (
	Silence      = 5 * time.Second
	shortSilence = time.Second            // when half the room is taken
	leastSilence = 250 * time.Millisecond // when three quarters are
	trialPause   = time.Second            // between two messages that try a part that is called away
)

// Health knows which parts of a cluster (partitions, brokers) are away while others work, and so how far a failure reaches. There
// are two ways to learn that a part is away, and a sink uses one: it counts messages in and out (Enter, Leave), and silence amid
// the success of others tells; or it finds out by itself and says so (Lost, Back). Health is safe for concurrent use.
type Health struct {
	room int // for messages without an outcome

	mu     sync.Mutex
	parts  map[string]*Part
	open   int       // counted messages without an outcome
	steady time.Time // since when no more than shortSilence passed between two successes
	last   time.Time // success
}

// Part is one partition or broker.
type Part struct {
	health *Health
	fault  atomic.Pointer[error] // why it is lost
	heard  atomic.Int64          // when it last answered a send, in nanoseconds

	// guarded by health.mu
	open  int       // messages with the client
	sign  time.Time // of life: the last success, or the moment at which open became 1
	tried time.Time // the last trial while it was silent; zero when it is not
}

// NewHealth makes the health of a cluster. room is how many messages may be without an outcome; it matters to Enter only.
func NewHealth(room int) *Health { return &Health{room: room, parts: map[string]*Part{}} }

// Part returns the part of a name, which is there from the first time it is asked for. Whoever asks often keeps it.
func (h *Health) Part(name string) *Part {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.parts[name]
	if p == nil {
		p = &Part{health: h}
		h.parts[name] = p
	}
	return p
}

// Working tells whether somebody takes messages at present.
func (h *Health) Working(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Sub(h.last) <= Silence
}

// Enter counts a message that is to be handed to the client, unless the part is silent while others work: then one message at a
// time may try it, now and then.
func (p *Part) Enter(now time.Time) bool {
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	if p.silent() {
		if p.open > 0 || now.Sub(p.tried) < trialPause {
			return false
		}
		p.tried = now
	}
	if p.open++; p.open == 1 && p.tried.IsZero() {
		p.sign = now
	}
	p.health.open++
	return true
}

// silent tells whether others have taken messages all the time while the part gave no sign of life. In an outage of all of them
// nobody does, and none is called silent. Callers hold mu.
func (p *Part) silent() bool {
	if !p.tried.IsZero() {
		return true
	}
	if p.open == 0 {
		return false
	}
	h, since, limit := p.health, p.sign, Silence
	if h.steady.After(since) {
		since = h.steady
	}
	switch {
	case h.open > h.room*3/4:
		limit = leastSilence
	case h.open > h.room/2:
		limit = shortSilence
	}
	return h.last.Sub(since) > limit
}

// Leave ends the count of a message that Enter let in. It reports whether its failure concerns the part alone.
func (p *Part) Leave(class outbox.Class, now time.Time) (alone bool) {
	h := p.health
	h.mu.Lock()
	defer h.mu.Unlock()
	working := now.Sub(h.last) <= Silence
	only := p.open == h.open && h.last.After(p.sign) // whatever the others got, they took
	h.open--
	p.open--
	switch class {
	case outbox.ClassNone:
		if now.Sub(h.last) > shortSilence {
			h.steady = now
		}
		h.last, p.sign, p.tried = now, now, time.Time{}
	case outbox.ClassOutage:
		// The client has tried for the whole delivery timeout, so a pause of the others is no excuse.
		if alone = !p.tried.IsZero() || only || h.last.Sub(p.sign) > Silence; alone {
			p.tried = now
		}
	default: // an answer about a message
		p.sign, p.tried = now, time.Time{}
	}
	return alone && (working || only)
}

// Answered records that the part answered a send, whatever it said.
func (p *Part) Answered(now time.Time) { p.heard.Store(now.UnixNano()) }

// AnsweredSince tells whether the part has answered a send since a moment.
func (p *Part) AnsweredSince(moment time.Time) bool { return p.heard.Load() > moment.UnixNano() }

// Lost records why the part is away. It reports whether it was not before.
func (p *Part) Lost(cause error) (first bool) { return p.fault.CompareAndSwap(nil, &cause) }

// Back records that a lost part is there. It reports whether it was away.
func (p *Part) Back() (was bool) { return p.fault.Swap(nil) != nil }

// Away is why a lost part gets no messages; nil when it does.
func (p *Part) Away() error {
	if fault := p.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// Scope says how far the absence of this part reaches: to what it serves, while another part is in use and not lost.
func (p *Part) Scope() outbox.Scope {
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	for _, other := range p.health.parts {
		if other != p && other.Away() == nil {
			return outbox.ScopePartition
		}
	}
	return outbox.ScopeCluster
}
