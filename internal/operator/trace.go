package operator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
)

// Sources of what a trace shows.
const (
	fromTable  = "table"
	fromState  = "state"
	fromLog    = "log"
	fromRelay  = "relay"
	fromBroker = "broker"
)

// tracer collects what is known of one row.
type tracer struct {
	*Operator
	rows    Rows
	row     *query.Row
	journal *outbox.Completion // of the row; nil when the journal does not have it
	flow    *Flow              // nil when no relay runs here
	notes   int                // events that the state directory has noted
	trace   Trace
}

// TraceMessage returns what is known of one message from all sources.
func (o *Operator) TraceMessage(ctx context.Context, ref MessageRef) (Trace, error) {
	rows, all, _, err := o.find(ctx, ref)
	if err != nil {
		return Trace{}, err
	}
	if len(all) > 1 {
		return Trace{}, Usagef("%q means %d messages, trace one of them by its message id: %s", ref.Ref, len(all), someIDs(all))
	}
	t := &tracer{Operator: o, rows: rows, row: &all[0], trace: Trace{Message: show(&all[0]), Events: []TraceEvent{}, Unknown: []string{}}}
	if err := t.state(); err != nil {
		return t.trace, err
	}
	t.table()
	t.broker(ctx)
	t.waits()
	slices.SortStableFunc(t.trace.Events, func(a, b TraceEvent) int {
		switch {
		case a.At == nil && b.At == nil:
			return 0
		case a.At == nil:
			return 1
		case b.At == nil:
			return -1
		}
		return a.At.Compare(*b.At)
	})
	return t.trace, nil
}

func someIDs(rows []query.Row) string {
	var ids []string
	for _, r := range rows[:min(len(rows), shown)] {
		ids = append(ids, fmt.Sprintf("%s (%s of %s)", r.MessageID, r.ID, r.Table))
	}
	if len(rows) > shown {
		ids = append(ids, "...")
	}
	return strings.Join(ids, ", ")
}

func (t *tracer) event(at time.Time, what, source, format string, args ...any) {
	t.trace.Events = append(t.trace.Events, TraceEvent{At: timeOrNil(at), What: what, Detail: fmt.Sprintf(format, args...), Source: source})
}

func (t *tracer) unknown(format string, args ...any) {
	t.trace.Unknown = append(t.trace.Unknown, fmt.Sprintf(format, args...))
}

// state adds what the state directory and the running relay know of the row.
func (t *tracer) state() error {
	if t.Flow != nil {
		flow := t.Flow(t.row.Identity, t.row.Topic)
		t.flow = &flow
	} else {
		t.unknown("no relay answers here: whether a relay owns the row is not known")
	}
	if t.State == nil {
		t.unknown("the state directory was not looked into: whether the message was sent and its status is still to be written is not known")
		return nil
	}
	sent, found, err := t.State.SentRow(t.row.Identity)
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	if found {
		t.journal = &sent
		t.event(sent.Since, "published", fromState, "the broker has acknowledged it%s; the table does not show it yet", brokerID(sent.BrokerID))
	}
	if err := t.noted(); err != nil {
		return err
	}
	return t.inLog()
}

// noted adds what the state directory has noted: refusals, what a person did, and sends other than the first one from the log.
func (t *tracer) noted() error {
	if t.Noted == nil {
		return nil
	}
	events, err := t.Noted(t.row.Identity)
	if err != nil {
		return err
	}
	t.trace.Events = append(t.trace.Events, events...)
	t.notes = len(events)
	return nil
}

// inLog says between which checkpoints the row was inserted. The history has the relay's clock and the row the database's.
func (t *tracer) inLog() error {
	if t.row.CreatedAt.IsZero() || t.State == nil {
		t.unknown("the row does not say when it was made, so that its place in the log is not known")
		return nil
	}
	history, err := t.State.History() // newest first
	if err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	made := t.row.CreatedAt
	behind := slices.IndexFunc(history, func(e HistoryEntry) bool { return e.At.Before(made) })
	switch {
	case behind < 0:
		t.unknown("the row was made before the oldest checkpoint that is known, so that its place in the log is not known")
	case behind == 0:
		t.event(time.Time{}, "in_log", fromLog, "behind %s, the checkpoint of %s", history[0].Position, clock(history[0].At))
	default:
		before, after := history[behind], history[behind-1]
		t.event(time.Time{}, "in_log", fromLog, "near the part from %s (checkpoint of %s) to %s (of %s), by the time at which it was made",
			before.Position, clock(before.At), after.Position, clock(after.At))
	}
	return nil
}

// table adds what the columns say.
func (t *tracer) table() {
	r := t.row
	if r.CreatedAt.IsZero() {
		t.unknown("when it was inserted: the table has no column for it, or the row none of it")
	} else {
		t.event(r.CreatedAt, "inserted", fromTable, "row %s of %s, message id %s", r.ID, r.Table, r.MessageID)
	}
	if r.Attempts > 0 {
		reason := "the table does not say why"
		if r.Reason != "" {
			reason = "the last reason: " + r.Reason
		}
		t.event(r.LastExec, "attempt", fromTable, "%s refused; %s", times(r.Attempts), reason)
		if r.Attempts > 1 && t.notes == 0 {
			t.unknown("the times and reasons of the attempts before the last one: a row keeps the last")
		}
	}
	switch {
	case r.Status == outbox.Sending:
		t.event(r.LastExec, "claimed", fromTable, "a sweep has marked it as SENDING")
	case r.Status == outbox.Failed:
		t.event(r.LastExec, "failed", fromTable, "FAILED: %s", orUnknown(r.Reason))
	case r.Status == outbox.Sent && !r.SentAt.IsZero():
		t.event(r.SentAt, "written", fromTable, "SENT%s", brokerID(r.BrokerID))
	case r.Status == outbox.Sent && !r.LastExec.IsZero():
		t.event(r.LastExec, "written", fromTable, "SENT%s", brokerID(r.BrokerID))
	case r.Status == outbox.Sent:
		t.event(time.Time{}, "written", fromTable, "SENT%s; the table does not say when", brokerID(r.BrokerID))
	case r.Status == outbox.Held && r.State != "":
		t.event(r.UpdatedAt, r.State, fromTable, "its status is %s, a state of its consumers or operators", state(r))
	case r.Status == outbox.Held:
		t.event(r.UpdatedAt, "held", fromTable, "%s", unknownCode(r))
	}
}

// unknownCode is the sentence about a row whose code the configuration does not name.
func unknownCode(r *query.Row) string {
	code := strconv.Quote(r.Code)
	switch {
	case r.Code == "":
		code = "NULL or ''"
	case !strings.ContainsFunc(r.Code, func(c rune) bool { return c != '-' && (c < '0' || c > '9') }):
		code = r.Code
	}
	return fmt.Sprintf("status %s is unknown to the relay; it never sends this row", code)
}

// waits says what has to happen next.
func (t *tracer) waits() {
	r := t.row
	switch {
	case t.journal != nil && r.Status != outbox.Sent:
		t.trace.WaitsFor = "the write of SENT into the table: the broker has it, and it is not sent again"
	case r.Status == outbox.Failed:
		t.trace.WaitsFor = "a decision: `canal-outbox messages retry` publishes it again, `messages discard` moves it out of the table"
		if every := t.rows.FailedEvery(r.Table); every > 0 {
			t.trace.WaitsFor += fmt.Sprintf("; without one the relay tries it again %v after the failure", every)
		}
	case r.Status == outbox.Sending:
		t.trace.WaitsFor = fmt.Sprintf("the broker's answer to the sweep that has claimed it; a claim older than %v is taken over", t.ClaimTimeout)
	case r.Status == outbox.Held && r.State == "":
		t.trace.WaitsFor = "a person: " + unknownCode(r) + ". Name the code in tables[].codes, or set the status to one that is named"
	case r.Status == outbox.Pending:
		t.trace.WaitsFor = t.pendingFor()
	}
}

// pendingFor says what a PENDING row waits for; what is known of the relay comes first.
func (t *tracer) pendingFor() string {
	r, flow := t.row, t.flow
	grace := t.rows.Grace(r.Table)
	switch {
	case r.DueIn > 0 && r.Attempts > 0:
		return fmt.Sprintf("the end of its pause after attempt %d, at %s (in %v)%s", r.Attempts, clock(r.Due), r.DueIn.Round(time.Second), ofLimit(r))
	case r.DueIn > 0:
		return fmt.Sprintf("its due time, %s (in %v): it is a delayed message", clock(r.Due), r.DueIn.Round(time.Second))
	case flow == nil:
		return "a relay: none answers here"
	case flow.Standby != "":
		return flow.Standby
	case flow.Suspended != "":
		return fmt.Sprintf("its topic %s, which is suspended: %s", r.Topic, flow.Suspended)
	case flow.Breaker == "lease-not-held":
		return "the lease: " + flow.Trouble
	case flow.Breaker != "" && flow.Breaker != "closed":
		return "the broker, which takes no messages: " + flow.Trouble
	case flow.Behind != "":
		return "an earlier message of its key (ordering: key): " + flow.Behind
	case flow.Owned:
		return "the broker's answer, or the write of its status: the relay owns it"
	case grace > 0 && r.Age < grace:
		return fmt.Sprintf("the application, which has %v to publish it itself", grace)
	}
	return fmt.Sprintf("due now; next sweep within %v", t.Interval)
}

func ofLimit(r *query.Row) string {
	if r.MaxRetry < 0 {
		return ""
	}
	unit := "retries"
	if r.Sends {
		unit = "sends"
	}
	return fmt.Sprintf("; the row allows %d %s", r.MaxRetry, unit)
}

func times(n int) string {
	if n == 1 {
		return "one attempt was"
	}
	return fmt.Sprintf("%d attempts were", n)
}

func brokerID(id string) string {
	if id == "" {
		return ""
	}
	return " as " + id
}

func orUnknown(reason string) string {
	if reason == "" {
		return "the table does not say why; the relay's log does"
	}
	return reason
}

func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000Z") }
