package stdout

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/sinktest"
)

// paper is a writer that can fail.
type paper struct {
	mu   sync.Mutex
	text bytes.Buffer
	away bool
	room int // bytes accepted before the error
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		n, _ := p.text.Write(b[:min(p.room, len(b))])
		return n, errors.New("no space left on device")
	}
	return p.text.Write(b)
}

func (p *paper) set(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

// read returns the lines of a topic, in the order of its one partition.
func (p *paper) read(t testing.TB, topic string) (out []sinktest.Stored) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, text := range strings.Split(strings.TrimSuffix(p.text.String(), "\n"), "\n") {
		var l line
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("line %d is not JSON: %v", i, err)
		}
		if l.Topic == topic {
			out = append(out, sinktest.Stored{Topic: l.Topic, Offset: int64(i), MessageID: l.MessageID, Key: l.Key, Tag: l.Tag, Headers: headersOf(t, l), Body: bodyOf(t, l)})
		}
	}
	return out
}

func headersOf(t testing.TB, l line) (out []outbox.Header) {
	for _, h := range l.Headers {
		if h.ValueBase64 != "" {
			value, err := base64.StdEncoding.DecodeString(h.ValueBase64)
			if err != nil {
				t.Fatal(err)
			}
			h.Value = string(value)
		}
		out = append(out, outbox.Header{Name: h.Name, Value: h.Value})
	}
	return out
}

func bodyOf(t testing.TB, l line) []byte {
	switch {
	case l.Body != nil:
		return append([]byte{}, *l.Body...)
	case l.BodyBase64 != nil:
		body, err := base64.StdEncoding.DecodeString(*l.BodyBase64)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	return nil
}

func TestSuite(t *testing.T) {
	p, topics := &paper{}, 0
	sinktest.Run(t, sinktest.Harness{
		New: func(testing.TB) sink.Sink { return New(p) },
		Topic: func(testing.TB) string {
			topics++
			return fmt.Sprintf("topic-%d", topics)
		},
		Read:  p.read,
		Stop:  func(testing.TB) { p.set(true) },
		Start: func(testing.TB) { p.set(false) },
	})
}

func some(n int) []*outbox.Message {
	out := make([]*outbox.Message, n)
	for i := range out {
		out[i] = &outbox.Message{Identity: outbox.Identity{Table: "shop.t_local_message", ID: fmt.Sprint(i), MessageID: fmt.Sprintf("order:%d", i)}, Topic: "orders", Partition: outbox.NoPartition, Body: []byte("b")}
	}
	return out
}

func TestOneLine(t *testing.T) {
	p := &paper{}
	s := New(p)
	m := some(1)[0]
	m.Key, m.ShardingKey, m.Tag, m.BizType, m.Partition = "k", "shard", "created", "order", 3
	m.Headers = []outbox.Header{{Name: "a", Value: "<1>"}, {Name: "b", Value: "\xff"}}
	m.Body = []byte(`{"sku":"A&B"}`)
	s.Send([]*outbox.Message{m}, func([]sink.Result) {})
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := `{"message_id":"order:0","table":"shop.t_local_message","id":"0","topic":"orders","key":"k","sharding_key":"shard","tag":"created","biz_type":"order","partition":3,` +
		`"headers":[{"name":"a","value":"<1>"},{"name":"b","value_base64":"/w=="}],"body":"{\"sku\":\"A&B\"}"}` + "\n"
	if got := p.text.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What was written before the error is sent, the rest is an outage.
func TestPartialWrite(t *testing.T) {
	p := &paper{away: true, room: 250}
	s := New(p)
	got := make(chan []sink.Result, 1)
	s.Send(some(10), func(r []sink.Result) { got <- r })
	results := <-got
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	whole := strings.Count(p.text.String(), "\n")
	if whole == 0 || whole == 10 {
		t.Fatalf("%d whole lines: the case proves nothing", whole)
	}
	for i, r := range results {
		if want := i < whole; (r.Class == outbox.ClassNone) != want || !want && r.Class != outbox.ClassOutage {
			t.Errorf("line %d of %d whole ones: class %s", i, whole, r.Class)
		}
	}
}

// stuck is a writer that blocks until it is released.
type stuck struct{ entered, release chan struct{} }

func (w stuck) Write(b []byte) (int, error) {
	close(w.entered)
	<-w.release
	return len(b), nil
}

func TestB30_CloseWhileTheWriterStandsStill(t *testing.T) {
	w := stuck{make(chan struct{}), make(chan struct{})}
	s := New(w)
	var mu sync.Mutex
	classes := map[outbox.Class]int{}
	done := func(results []sink.Result) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range results {
			classes[r.Class]++
		}
	}
	s.Send(some(3), done)
	<-w.entered
	s.Send(some(4), done)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); err == nil {
		t.Error("Close does not report that messages were left")
	}
	close(w.release)
	<-s.stopped
	if len(classes) != 1 || classes[outbox.ClassUnknown] != 7 {
		t.Errorf("results: %v", classes)
	}
}
