package sink

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Limits of how long a part may give no sign of life while others accept messages. After that the client gets no more messages
// for it; the limit is shorter when the room for messages is nearly full. A client may keep a message for its delivery timeout,
// or without limit when the message is on the wire, so one dead part could fill all the room.
const (
	Silence      = 5 * time.Second
	shortSilence = time.Second            // when half the room is used
	leastSilence = 250 * time.Millisecond // when three quarters are used
	trialPause   = time.Second            // between two messages that try a silent part
)

// Health records which parts of a cluster (partitions, brokers) are away while others work, and so how far a failure reaches. A
// sink uses one of two ways to detect that: it counts messages in and out (Enter, Leave), so that a part is away when it is
// silent while others succeed; or it detects the loss itself and reports it (Lost, Back). Health is safe for concurrent use.
type Health struct {
	room int // for messages without an outcome

	mu     sync.Mutex
	parts  map[string]*Part
	open   int       // counted messages without an outcome
	steady time.Time // since when successes came at most shortSilence apart
	last   time.Time // the last success
}

// Part is one partition or broker.
type Part struct {
	health   *Health
	fault    atomic.Pointer[error] // why it is lost
	answered atomic.Int64          // when it last answered a send, in nanoseconds

	// guarded by health.mu
	open  int       // messages with the client
	sign  time.Time // of life: the last success, or the time at which open became 1
	tried time.Time // the last trial while it was silent; zero when it is not silent
}

// NewHealth returns the health of a cluster. room is the maximum number of messages without an outcome; only Enter uses it.
func NewHealth(room int) *Health { return &Health{room: room, parts: map[string]*Part{}} }

// Part returns the part with a name and creates it at the first call. Frequent callers keep the result.
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

// Working reports whether any part accepts messages at present.
func (h *Health) Working(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Sub(h.last) <= Silence
}

// Enter counts a message before it is passed to the client. While the part is silent and others work, only one message at a time
// may try it, at intervals.
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

// silent reports whether others accepted messages all the time while the part gave no sign of life. In an outage of all parts
// none is silent. Callers hold mu.
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

// Leave ends the count of a message from Enter. It reports whether its failure concerns this part only.
func (p *Part) Leave(class outbox.Class, now time.Time) (alone bool) {
	h := p.health
	h.mu.Lock()
	defer h.mu.Unlock()
	working := now.Sub(h.last) <= Silence
	only := p.open == h.open && h.last.After(p.sign) // all messages that the others got were accepted
	h.open--
	p.open--
	switch class {
	case outbox.ClassNone:
		if now.Sub(h.last) > shortSilence {
			h.steady = now
		}
		h.last, p.sign, p.tried = now, now, time.Time{}
	case outbox.ClassOutage:
		// The client has tried for the whole delivery timeout, so a pause of the others does not matter.
		if alone = !p.tried.IsZero() || only || h.last.Sub(p.sign) > Silence; alone {
			p.tried = now
		}
	default: // an answer about a message
		p.sign, p.tried = now, time.Time{}
	}
	return alone && (working || only)
}

// Answered records that the part answered a send, whatever the answer.
func (p *Part) Answered(now time.Time) { p.answered.Store(now.UnixNano()) }

// AnsweredSince reports whether the part has answered a send after a time.
func (p *Part) AnsweredSince(at time.Time) bool { return p.answered.Load() > at.UnixNano() }

// Lost records why the part is away. It reports whether it was available before.
func (p *Part) Lost(cause error) (first bool) { return p.fault.CompareAndSwap(nil, &cause) }

// Back records that a lost part is available. It reports whether it was away.
func (p *Part) Back() (was bool) { return p.fault.Swap(nil) != nil }

// Away returns why a lost part gets no messages; nil when it does.
func (p *Part) Away() error {
	if fault := p.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// Scope returns how far the absence of this part reaches: ScopePartition while another part is in use and not lost.
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
