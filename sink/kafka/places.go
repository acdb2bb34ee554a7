package kafka

import (
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// How long a partition may give no sign of life, while others take messages all the time, until nothing more is handed to
// the client for it; and how long when the room for messages is short. The client itself keeps a message for the delivery
// timeout, or for ever when it is on the wire: at that rate one dead partition would fill all the room there is.
const (
	silence      = 5 * time.Second
	shortSilence = time.Second            // when half the room is taken
	leastSilence = 250 * time.Millisecond // when three quarters are
	placeTrial   = time.Second            // between two messages that try a partition that is called away
)

// places knows which partitions are away while others work. Only messages whose partition is fixed (by key or by the row)
// are counted: for the others the client chooses a partition that has a leader. It is safe for concurrent use.
type places struct {
	room int // for messages without an outcome

	mu     sync.Mutex
	topics map[string][]place
	open   int       // counted messages without an outcome
	steady time.Time // since when no more than shortSilence passed between two successes
	last   time.Time // success
}

// place is one partition.
type place struct {
	open  int       // messages with the client
	sign  time.Time // of life: the last success, or the moment at which open became 1
	tried time.Time // the last trial while it was away; zero when it is not
}

func newPlaces(maxInFlight int) *places {
	return &places{room: maxInFlight, topics: map[string][]place{}}
}

// enter counts a message to a partition of a topic, once however often it is asked, and reports whether it may go there.
func (ps *places) enter(d *delivery, partition int, now time.Time) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if d.counted {
		return true
	}
	list := ps.topics[d.message.Topic]
	for len(list) <= partition {
		list = append(list, place{})
	}
	ps.topics[d.message.Topic] = list
	p := &list[partition]
	if ps.away(p) {
		if p.open > 0 || now.Sub(p.tried) < placeTrial {
			d.away = true
			return false
		}
		p.tried = now
	}
	if p.open++; p.open == 1 && p.tried.IsZero() {
		p.sign = now
	}
	ps.open++
	d.counted, d.place = true, partition
	return true
}

// away tells whether a partition is called away: others have taken messages all the time while it gave no sign of life.
// In an outage of all of them nobody does, and none is called away. Callers hold mu.
func (ps *places) away(p *place) bool {
	if !p.tried.IsZero() {
		return true
	}
	if p.open == 0 {
		return false
	}
	since, limit := p.sign, silence
	if ps.steady.After(since) {
		since = ps.steady
	}
	switch {
	case ps.open > ps.room*3/4:
		limit = leastSilence
	case ps.open > ps.room/2:
		limit = shortSilence
	}
	return ps.last.Sub(since) > limit
}

// leave ends the count of a message. It reports whether its failure concerns its partition alone.
func (ps *places) leave(d *delivery, class outbox.Class, now time.Time) (alone bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	working := now.Sub(ps.last) <= silence // somebody takes messages
	if !d.counted {
		return d.away && working
	}
	d.counted = false
	p := &ps.topics[d.message.Topic][d.place]
	only := p.open == ps.open && ps.last.After(p.sign) // whatever the others got, they took
	ps.open--
	p.open--
	switch class {
	case outbox.ClassNone:
		if now.Sub(ps.last) > shortSilence {
			ps.steady = now
		}
		ps.last, p.sign, p.tried = now, now, time.Time{}
	case outbox.ClassOutage:
		// The client has tried for the whole delivery timeout, so a pause of the others is no excuse.
		if alone = !p.tried.IsZero() || only || ps.last.Sub(p.sign) > silence; alone {
			p.tried = now
		}
	default: // an answer about a message
		p.sign, p.tried = now, time.Time{}
	}
	return alone && (working || only)
}
