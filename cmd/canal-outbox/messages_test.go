package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// messagesDaemon answers for messages and records the orders.
type messagesDaemon struct {
	orders []operator.MessageOrder
	query  operator.MessageQuery
}

func failedMessage() operator.Message {
	due, last, age := moment.Add(-time.Hour), moment.Add(-2*time.Hour), 5400.5
	return operator.Message{
		Table: "shop.t_local_message", ID: "17", MessageID: "order:4711", Topic: "orders", Key: "4711", Status: "failed", Code: "3", Attempts: 5,
		DueAt: &due, CreatedAt: &moment, AgeSeconds: &age, LastExecution: &last, Reason: "the record is too large\n\x1b[31mfor the topic, whose limit is 1048588 bytes, and so on",
	}
}

func (d *messagesDaemon) ListMessages(_ context.Context, q operator.MessageQuery) (operator.MessagePage, error) {
	d.query = q
	if q.Topic == "everything" {
		return operator.MessagePage{}, &operator.Error{Code: operator.CodeNeedsScan, Message: "it would read about 7 rows; --scan reads them"}
	}
	return operator.MessagePage{Table: "shop.t_local_message", Messages: []operator.Message{failedMessage()}, Next: "eyJpIjoiMTcifQ"}, nil
}

func (d *messagesDaemon) ShowMessages(_ context.Context, ref operator.MessageRef) (operator.MessageMatches, error) {
	if ref.Ref == "absent" {
		return operator.MessageMatches{}, operator.NotFoundf("no row has it")
	}
	one := operator.MessageDetail{Message: failedMessage(), Headers: []operator.MessageHeader{{Name: "traceparent"}}, BodyBytes: 18}
	if ref.Body {
		value, body := "00-1", "{\"order\": 4711}\n\x07!"
		one.Body, one.BodyEncoding, one.Headers[0].Value = &body, "utf-8", &value
	}
	return operator.MessageMatches{Matches: []operator.MessageDetail{one}, Notes: []string{"something was not looked for"}}, nil
}

func (d *messagesDaemon) TraceMessage(context.Context, operator.MessageRef) (operator.Trace, error) {
	return operator.Trace{
		Message: failedMessage(), Events: []operator.TraceEvent{
			{At: &moment, What: "inserted", Detail: "row 17", Source: "table"}, {What: "in_log", Detail: "near binlog.000002:600", Source: "log"},
		}, WaitsFor: "a decision", Unknown: []string{"the times of the attempts before the last one"},
	}, nil
}

func (d *messagesDaemon) change(o operator.MessageOrder) (operator.MessageChange, error) {
	d.orders = append(d.orders, o)
	change := operator.MessageChange{
		Table: "shop.t_local_message", Matched: 22, More: true, DryRun: o.DryRun, Messages: []operator.Message{failedMessage()},
		Refused: []operator.MessageRefusal{}, Notes: []string{"a note"},
	}
	if len(o.IDs) > 0 && o.IDs[0] == "18" {
		change.Refused = []operator.MessageRefusal{{Ref: "18", Reason: "it is SENT"}}
	}
	if !o.DryRun {
		if len(change.Refused) > 0 {
			return change, operator.Refusedf("nothing was changed: 18: it is SENT")
		}
		change.Changed = 22
	}
	return change, nil
}

func (d *messagesDaemon) RetryMessages(_ context.Context, o operator.MessageOrder) (operator.MessageChange, error) {
	return d.change(o)
}

func (d *messagesDaemon) DiscardMessages(_ context.Context, o operator.MessageOrder) (operator.MessageChange, error) {
	return d.change(o)
}

func (d *messagesDaemon) MessageStats(_ context.Context, table string) (operator.MessageStats, error) {
	age := 3661.0
	return operator.MessageStats{
		Table: "shop.t_local_message", ByStatus: map[string]int64{"pending": 3, "failed": 100_000, "sent": 1200},
		Kinds:   map[string]string{"pending": "exact", "failed": "at_least", "sent": "estimate"},
		ByTopic: []operator.TopicStats{{Topic: "orders", Pending: 3, Failed: 20, OldestAgeSeconds: &age}, {Topic: "mail"}},
		ByType:  []operator.TypeStats{{Type: "refund", Pending: 3, Failed: 20, OldestAgeSeconds: &age}},
		Reasons: []operator.ReasonStats{{Reason: "too large", Count: 20}}, Notes: []string{"topics are of a sample"},
	}, nil
}

// The output of each command, as text and as JSON, is a contract.
func TestMessagesThroughTheDaemon(t *testing.T) {
	file, dir := configure(t)
	start(t, dir)
	for name, args := range map[string][]string{
		"messages-list":    {"messages", "list"},
		"messages-show":    {"messages", "show", "order:4711"},
		"messages-body":    {"messages", "show", "17", "--body"},
		"messages-trace":   {"messages", "trace", "4711"},
		"messages-stats":   {"messages", "stats"},
		"messages-preview": {"messages", "retry", "--status", "failed", "--dry-run"},
		"messages-refused": {"messages", "retry", "18", "17", "--dry-run"},
		"messages-retry":   {"messages", "retry", "--topic", "orders", "--yes"},
		"messages-discard": {"messages", "discard", "order:4711", "--yes"},
	} {
		for _, format := range []string{"text", "json"} {
			got := run("", append(args, "-c", file, "-o", format)...)
			if got.code != exitOK || got.err != "" {
				t.Errorf("%v: %+v", args, got)
			}
			golden(t, name+"."+format, got.out)
			if format == "json" && !json.Valid([]byte(got.out)) {
				t.Errorf("%v: not JSON: %s", args, got.out)
			}
			if strings.ContainsAny(got.out, "\x1b\x07") {
				t.Errorf("%v: a row moves the terminal's cursor: %q", args, got.out)
			}
		}
	}
}

// Commands that change messages show first what they would do, and ask for confirmation.
func TestMessagesAskFirst(t *testing.T) {
	file, dir := configure(t)
	d := start(t, dir)
	got := run("y\n", "messages", "discard", "17", "-c", file) // not a terminal: an answer on a pipe is none
	if got.code != exitRefused || !strings.Contains(got.err, "--yes") || !strings.Contains(got.err, "order:4711") {
		t.Errorf("%+v", got)
	}
	if len(d.orders) != 1 || !d.orders[0].DryRun {
		t.Errorf("orders %+v", d.orders)
	}
	got = run("", "messages", "retry", "18", "--yes", "-c", file, "-o", "json")
	if got.code != exitRefused || !strings.Contains(got.err, `"code":"refused"`) || got.out != "" {
		t.Errorf("%+v", got)
	}
	run("", "messages", "retry", "--key", "4711", "--older-than", "90m", "--limit", "7", "--republish", "--scan", "--yes", "-c", file)
	last := d.orders[len(d.orders)-1]
	if last.DryRun || last.Limit != 7 || !last.Republish || !last.Scan || *last.Filter != (operator.MessageFilter{Key: "4711", OlderThan: operator.Duration(90 * time.Minute)}) {
		t.Errorf("order %+v", last)
	}
}

// Bad input ends with the code of its kind, and no order reaches the relay.
func TestMessagesBadInput(t *testing.T) {
	file, dir := configure(t)
	d := start(t, dir)
	for code, all := range map[int][][]string{
		exitUsage: {
			{"messages"},
			{"messages", "list", "extra"},
			{"messages", "list", "--limit", "0"},
			{"messages", "list", "--older-than", "soon"},
			{"messages", "list", "--older-than", "-1h"},
			{"messages", "show"},
			{"messages", "show", ""},
			{"messages", "trace", "a", "b"},
			{"messages", "retry"},
			{"messages", "retry", "17", "--topic", "orders"},
			{"messages", "retry", "17", "--limit", "0"},
			{"messages", "retry", "1", "2", "--limit", "1"},
			{"messages", "discard"},
			{"messages", "discard", "17", "--republish"},
			{"messages", "retry", "--status", "failed", "--limit", "10001"},
			{"messages", "show", strings.Repeat("k", 4000)},
		},
		exitRefused: {{"messages", "list", "--topic", "everything"}},
		exitFailure: {{"messages", "show", "absent"}},
	} {
		for _, args := range all {
			if got := run("", append(args, "-c", file)...); got.code != code || got.err == "" || got.out != "" {
				t.Errorf("%.60q: %+v", args, got)
			}
		}
	}
	if len(d.orders) != 0 {
		t.Errorf("orders %+v", d.orders)
	}
}

// Without a running relay the commands query the database, which is away here.
func TestMessagesWithoutADaemon(t *testing.T) {
	file, _ := configure(t)
	for _, args := range [][]string{{"messages", "list"}, {"messages", "show", "17"}, {"messages", "trace", "17"}, {"messages", "stats"}, {"messages", "retry", "17", "--yes"}} {
		if got := run("", append(args, "-c", file)...); got.code != exitFailure || !strings.Contains(got.err, "connect to 127.0.0.1:1") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
