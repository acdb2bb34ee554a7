package sink

import (
	"sort"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// LatencyBounds are the upper ends of the ranges in which a Tally counts latencies, in seconds.
var LatencyBounds = [...]float64{.0002, .0005, .001, .0015, .002, .003, .005, .0075, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// maxTallied bounds the topics of a Tally; the results of further ones are counted under "other".
const maxTallied = 200

// Tally counts results since the start. The zero value is ready; it has no lock.
type Tally struct {
	Sent, Swept uint64 // acknowledged messages, and those of them that a sweep found
	Topics      map[string]TopicTally
	// Latency counts acknowledged messages of the binlog by the time since their commit: in the ranges of LatencyBounds, and beyond.
	Latency [len(LatencyBounds) + 1]uint64
	Seconds float64 // all these latencies together
}

// TopicTally counts the results of one topic.
type TopicTally struct{ Sent, Other uint64 }

// Count adds a result that came at a time.
func (t *Tally) Count(r *Result, now time.Time) {
	topic := r.Message.Topic
	one, known := t.Topics[topic]
	if !known && len(t.Topics) >= maxTallied {
		topic = "other"
		one = t.Topics[topic]
	}
	if t.Topics == nil {
		t.Topics = map[string]TopicTally{}
	}
	if r.Class != outbox.ClassNone {
		one.Other++
		t.Topics[topic] = one
		return
	}
	one.Sent++
	t.Topics[topic] = one
	t.Sent++
	switch r.Message.Path {
	case outbox.PathSweep:
		t.Swept++
	case outbox.PathBinlog:
		took := max(0, now.Sub(r.Message.Since).Seconds())
		t.Latency[sort.SearchFloat64s(LatencyBounds[:], took)]++
		t.Seconds += took
	}
}
