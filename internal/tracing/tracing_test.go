package tracing

import (
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/test/collector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	caller  = "b7ad6b7169203331"
)

// broker answers at once with an outcome.
type broker struct {
	sink.Sink
	outcome outbox.Outcome
}

func (b broker) Send(batch []*outbox.Message, done func([]sink.Result)) {
	for _, m := range batch {
		done([]sink.Result{{Message: m, Outcome: b.outcome}})
	}
}

func newTracer(t *testing.T, endpoint string) *Tracer {
	t.Helper()
	tr, err := New(Config{Endpoint: endpoint, System: "kafka", Version: "test"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func message(id, traceparent string) *outbox.Message {
	return &outbox.Message{
		Identity: outbox.Identity{Table: "shop.t", ID: id, MessageID: "order:" + id}, Topic: "orders", Body: []byte("a secret"),
		Headers: []outbox.Header{{Name: "Traceparent", Value: traceparent}}, Since: time.Now().Add(-time.Second),
	}
}

func sampled(id string) *outbox.Message { return message(id, "00-"+traceID+"-"+caller+"-01") }

// of returns the spans with a name.
func of(spans []*tracepb.Span, name string) (found []*tracepb.Span) {
	for _, s := range spans {
		if s.GetName() == name {
			found = append(found, s)
		}
	}
	return found
}

// A sampled message has three spans, of which the first is a child of the application's and the parent of the others, one after the
// other in time. Others have none.
func TestThreeSpans(t *testing.T) {
	c := collector.New(t)
	tr := newTracer(t, c.URL)
	batch := []*outbox.Message{
		sampled("1"), message("2", "00-"+traceID+"-"+caller+"-00"), message("3", "00-no-trace-01"),
		{Identity: outbox.Identity{Table: "shop.t", ID: "4"}, Topic: "orders"},
	}
	answers := 0
	tr.Sink(broker{}).Send(batch, func(r []sink.Result) { answers += len(r) })
	var written []outbox.Completion
	for _, m := range batch {
		written = append(written, outbox.Completion{Identity: m.Identity, Action: outbox.ActionMarkSent})
	}
	tr.Written(written, nil)
	tr.Close(time.Minute)
	spans := c.Spans()
	if answers != 4 || len(spans) != 3 {
		t.Fatalf("%d answers, %d spans: %v", answers, len(spans), spans)
	}
	all, send, mark := of(spans, "outbox orders")[0], of(spans, "send orders")[0], of(spans, "mark sent shop.t")[0]
	if hex.EncodeToString(all.GetTraceId()) != traceID || hex.EncodeToString(all.GetParentSpanId()) != caller {
		t.Errorf("%v", all)
	}
	for _, s := range []*tracepb.Span{send, mark} {
		if !slices.Equal(s.GetParentSpanId(), all.GetSpanId()) || !slices.Equal(s.GetTraceId(), all.GetTraceId()) || s.GetStatus().GetCode() != 0 {
			t.Errorf("%v", s)
		}
	}
	since := uint64(batch[0].Since.UnixNano())
	if all.GetStartTimeUnixNano() != since || send.GetStartTimeUnixNano() <= since || mark.GetStartTimeUnixNano() != send.GetEndTimeUnixNano() ||
		all.GetEndTimeUnixNano() != mark.GetEndTimeUnixNano() {
		t.Errorf("times: %v", spans)
	}
	for _, s := range spans {
		if strings.Contains(s.String(), "secret") {
			t.Errorf("it holds the body: %v", s)
		}
	}
}

// A message that is not published, or whose row no status update follows, ends its spans with the answer; one whose update is refused
// ends with the refusal, and one whose row is locked waits.
func TestEachSpanEnds(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*outbox.Message)
		outcome outbox.Outcome
		not     []outbox.WriteError
		spans   int
		failed  bool
		waits   bool
	}{
		{name: "refused by the broker", outcome: outbox.Outcome{Class: outbox.ClassRefused}, spans: 2, failed: true},
		{name: "log only", change: func(m *outbox.Message) { m.LogOnly = true }, spans: 2},
		{name: "redelivery", change: func(m *outbox.Message) { m.Path = outbox.PathRedelivery }, spans: 2},
		{name: "refused by the table", not: []outbox.WriteError{{Completion: outbox.Completion{Identity: sampled("1").Identity}}}, spans: 3},
		{name: "locked", not: []outbox.WriteError{{Completion: outbox.Completion{Identity: sampled("1").Identity}, Retryable: true}}, spans: 2, waits: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := collector.New(t)
			tr := newTracer(t, to.URL)
			m := sampled("1")
			if c.change != nil {
				c.change(m)
			}
			tr.Sink(broker{outcome: c.outcome}).Send([]*outbox.Message{m}, func([]sink.Result) {})
			tr.Written([]outbox.Completion{{Identity: m.Identity}}, c.not)
			if got := tr.count.Load() == 1; got != c.waits {
				t.Errorf("%d wait", tr.count.Load())
			}
			tr.Close(time.Minute)
			spans := to.Spans()
			if len(spans) != c.spans {
				t.Fatalf("%v", spans)
			}
			if got := of(spans, "send orders")[0].GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR; got != c.failed {
				t.Errorf("%v", spans)
			}
		})
	}
}

// A collector that hangs, or is not there, delays no message.
func TestTheFlowDoesNotWaitForTheCollector(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer s.Close()
	defer close(release)
	for _, endpoint := range []string{s.URL, "http://127.0.0.1:1"} {
		tr := newTracer(t, endpoint)
		out, answers := tr.Sink(broker{}), 0
		for range 10_000 { // more than the SDK's queue holds
			m := sampled("1")
			out.Send([]*outbox.Message{m}, func(r []sink.Result) { answers += len(r) })
			tr.Written([]outbox.Completion{{Identity: m.Identity}}, nil)
		}
		tr.Close(time.Nanosecond) // does not leave a goroutine
		if answers != 10_000 {
			t.Errorf("%s: %d answers", endpoint, answers)
		}
	}
}

// Without an endpoint there is nothing between the flow and its sink.
func TestWithoutATracer(t *testing.T) {
	var tr *Tracer
	if s := (broker{}); tr.Sink(s) != sink.Sink(s) {
		t.Error("the sink is wrapped")
	}
	tr.Written(nil, nil)
	tr.Close(time.Minute)
}
