package operator

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/sink"
)

func whats(events []TraceEvent) (list []string) {
	for _, e := range events {
		list = append(list, e.What+"/"+e.Source)
	}
	return list
}

// A PENDING row waits for the first thing that blocks it. What is not known is said.
func TestWhatARowWaitsFor(t *testing.T) {
	working := Flow{Breaker: "closed"}
	for _, c := range []struct {
		row  query.Row
		flow *Flow
		want string
	}{
		{query.Row{Attempts: 2, DueIn: time.Minute, Due: now, MaxRetry: 5}, &working, "the end of its pause after attempt 2, at 2026-01-02 03:04:05.000Z (in 1m0s)"},
		{query.Row{DueIn: time.Minute, Due: now}, &working, "its due time"},
		{query.Row{}, nil, "a relay: none answers here"},
		{query.Row{}, &Flow{Standby: "the active relay on db-2"}, "the active relay on db-2"},
		{query.Row{}, &Flow{Suspended: "unknown topic", Breaker: "closed"}, "its topic orders, which is suspended: unknown topic"},
		{query.Row{}, &Flow{Breaker: "open", Trouble: "connection refused"}, "the broker, which takes no messages: connection refused"},
		{query.Row{}, &Flow{Breaker: "closed", Owned: true, Behind: "row 3"}, "an earlier message of its key (ordering: key): row 3"},
		{query.Row{}, &Flow{Breaker: "closed", Owned: true}, "the broker's answer"},
		{query.Row{}, &working, "due now; next sweep within 30s"},
		{query.Row{Status: outbox.Sending}, &working, "a claim older than 1m0s is taken over"},
		{query.Row{Status: outbox.Failed}, &working, "a decision"},
		{query.Row{Status: outbox.Sent}, &working, ""},
		{query.Row{Status: outbox.Held, State: "consumed"}, &working, ""},
		{query.Row{Status: outbox.Held, Code: "9"}, &working, "status 9 is unknown to the relay; it never sends this row"},
	} {
		m := newRows(c.row).operator()
		m.Interval, m.ClaimTimeout = 30*time.Second, time.Minute
		if c.flow != nil {
			m.Flow = func(outbox.Identity, string) Flow { return *c.flow }
		}
		trace, err := m.TraceMessage(t.Context(), MessageRef{Ref: "1"})
		if err != nil || !strings.Contains(trace.WaitsFor, c.want) || (c.want == "") != (trace.WaitsFor == "") {
			t.Errorf("%+v: waits for %q, want %q (%v)", c.row, trace.WaitsFor, c.want, err)
		}
		if c.flow == nil && !slices.ContainsFunc(trace.Unknown, func(s string) bool { return strings.Contains(s, "no relay answers") }) {
			t.Errorf("unknown: %q", trace.Unknown)
		}
	}
}

// The whole way of a message that was refused once and then sent: its place in the log, its attempt, the broker's copy, its status.
func TestTraceOfAMessage(t *testing.T) {
	row := query.Row{Status: outbox.Sent, Attempts: 1, LastExec: now.Add(3 * time.Second), SentAt: now.Add(4 * time.Second), BrokerID: "b-1"}
	broker := &topic{records: []sink.Record{{MessageID: "other"}, {MessageID: "order:k-1", At: now.Add(2 * time.Second), Position: "partition 1 offset 7", Body: []byte("x")}}}
	at := func(offset uint64) outbox.Position { return outbox.Position{File: "binlog.000002", Offset: offset} }
	m := newRows(row).operator()
	m.Flow = func(outbox.Identity, string) Flow { return Flow{Breaker: "closed"} }
	m.State = &memory{history: []HistoryEntry{{At: now.Add(time.Second), Position: at(900)}, {At: now.Add(-time.Second), Position: at(600)}}}
	m.Broker = func() (sink.Reader, func(), error) { return broker, func() {}, nil }
	trace, err := m.TraceMessage(t.Context(), MessageRef{Ref: "k-1"})
	want := []string{"inserted/table", "published/broker", "attempt/table", "written/table", "in_log/log"}
	if err != nil || !slices.Equal(whats(trace.Events), want) || trace.WaitsFor != "" || len(trace.Unknown) != 0 {
		t.Fatalf("%v, want %v; unknown %q (%v)", whats(trace.Events), want, trace.Unknown, err)
	}
	if d := trace.Events[4].Detail; !strings.Contains(d, "binlog.000002:600") || !strings.Contains(d, "binlog.000002:900") {
		t.Errorf("in the log: %s", d)
	}
	if d := trace.Events[1].Detail; d != "topic orders, partition 1 offset 7, 1 bytes" {
		t.Errorf("published: %s", d)
	}
	if !broker.from.Equal(row.SentAt.Add(-readAround)) || !broker.to.Equal(row.SentAt.Add(readAround)) {
		t.Errorf("the topic was read from %v to %v", broker.from, broker.to)
	}
	for what, change := range map[string]func(){
		"without finding it":  func() { broker.records = broker.records[:1] },
		"not to the end":      func() { broker.records = slices.Repeat(broker.records[:1], readRecords) },
		"the broker is away":  func() { broker.records, broker.err = nil, errors.New("the broker is away") },
		"cannot be read back": func() { m.Broker = nil },
	} {
		before := *broker
		reader := m.Broker
		change()
		trace, err := m.TraceMessage(t.Context(), MessageRef{Ref: "k-1"})
		if err != nil || len(trace.Unknown) != 1 || !strings.Contains(trace.Unknown[0], what) {
			t.Errorf("%s: unknown %q (%v)", what, trace.Unknown, err)
		}
		*broker, m.Broker = before, reader
	}
}

// A message whose status is still to be written is known from the journal.
func TestTraceOfAMessageInTheJournal(t *testing.T) {
	r := newRows(query.Row{})
	m := r.operator()
	m.State = &memory{journal: []outbox.Completion{{Identity: r.all[0].Identity, BrokerID: "b-7"}}}
	trace, err := m.TraceMessage(t.Context(), MessageRef{Ref: "1"})
	if err != nil || !slices.Contains(whats(trace.Events), "published/state") || !strings.Contains(trace.WaitsFor, "write of SENT") {
		t.Errorf("%+v, %v", trace, err)
	}
	r.all = append(r.all, r.all[0])
	r.all[1].ID = "2"
	if _, err := m.TraceMessage(t.Context(), MessageRef{Ref: "k-1"}); codeOf(err) != CodeUsage || !strings.Contains(err.Error(), "means 2 messages") {
		t.Errorf("one of two: %v", err)
	}
}

// What the state directory has noted is among the events, by time; the row's own attempts stay.
func TestG44_ATraceShowsWhatWasNoted(t *testing.T) {
	at := now.Add(time.Second)
	m := newRows(query.Row{Status: outbox.Sent, Attempts: 2, LastExec: now.Add(3 * time.Second), SentAt: now.Add(4 * time.Second)}).operator()
	m.State = &memory{}
	m.Noted = func(outbox.Identity) ([]TraceEvent, error) {
		return []TraceEvent{{At: &at, What: "refused", Detail: "attempt 1: no; relay a", Source: "state"}}, nil
	}
	trace, err := m.TraceMessage(t.Context(), MessageRef{Ref: "k-1"})
	if err != nil || !slices.Equal(whats(trace.Events), []string{"inserted/table", "refused/state", "attempt/table", "written/table"}) {
		t.Errorf("%v, %v", whats(trace.Events), err)
	}
	for _, u := range trace.Unknown {
		if strings.Contains(u, "attempts before the last") {
			t.Errorf("not known: %q", u)
		}
	}
}
