package app

import (
	"strings"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/history"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
)

// watched is what the recorder of the past looks at.
func (in *instance) watched() history.Watched {
	return history.Watched{Status: in.service().Status, Conditions: in.conditions}
}

// conditions are what changes seldom and explains a curve.
func (in *instance) conditions() []history.Condition {
	lease := history.Condition{Kind: "lease", State: "the lease: " + in.showLease(time.Now()).State}
	if !in.relay.Ready() {
		return []history.Condition{lease}
	}
	binlog, flow := "the binlog is not being read", in.relay.Flow.Snapshot()
	switch state := in.reader.State(); {
	case state.Connected:
		binlog = "the binlog is being read"
	case state.Stuck != nil:
		binlog = "the binlog reader is stuck behind " + state.Stuck.At.String()
	}
	topics := "no topic is suspended"
	if n := len(flow.SuspendedTopics); n > 0 {
		names := make([]string, 0, n)
		for _, t := range flow.SuspendedTopics[:min(n, 3)] {
			names = append(names, t.Topic)
		}
		if n > len(names) {
			names = append(names, "...")
		}
		topics = "suspended: " + strings.Join(names, ", ")
	}
	breaker := "the broker takes messages"
	switch flow.Breaker {
	case "closed":
	case dispatch.LeaseNotHeld:
		breaker = "nothing is sent: the lease is not held"
	default:
		breaker = "the broker takes no messages"
	}
	return []history.Condition{lease, {Kind: "binlog", State: binlog}, {Kind: "breaker", State: breaker}, {Kind: "topics", State: topics}}
}

// pastMoves are the marks of what the state directory remembers: gaps, failovers and an operator's moves of the checkpoint.
// Reading them goes through some thousand records, so it is done once in a while, however many ask.
type pastMoves struct {
	mu    sync.Mutex
	at    time.Time
	marks []operator.Mark
}

const movesAge = 5 * time.Second

func (m *pastMoves) read(entries func() ([]operator.HistoryEntry, error)) ([]operator.Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.at) < movesAge {
		return m.marks, nil
	}
	list, err := entries()
	if err != nil {
		return nil, err
	}
	m.marks, m.at = nil, time.Now()
	for _, e := range list {
		switch {
		case e.Reason == "" || e.Reason == relay.ReasonGTIDs:
		case e.Reason == relay.ReasonFailover:
			m.marks = append(m.marks, operator.Mark{At: e.At, Kind: "failover", Text: "failover to " + e.Source})
		case strings.HasPrefix(e.Reason, relay.ReasonGap):
			m.marks = append(m.marks, operator.Mark{At: e.At, Kind: "gap", Text: e.Reason})
		default:
			m.marks = append(m.marks, operator.Mark{At: e.At, Kind: "checkpoint", Text: "checkpoint " + e.Reason})
		}
	}
	return m.marks, nil
}

// timeline is what was recorded, with the moves of the checkpoint.
func (in *instance) timeline(span operator.Span) (operator.Timeline, error) {
	marks, err := in.moves.read(operatorState{in.state}.History)
	if err != nil {
		return operator.Timeline{}, err
	}
	return in.past.Timeline(span, marks), nil
}
