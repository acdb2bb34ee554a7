// Package stdout writes messages as JSON lines, for trials and for pipes into other programs.
//
// Guarantee: that of sink.Sink, with the writer as the broker. A message is sent when the writer has accepted its whole line;
// lines come in the order of Send, whatever their keys. A writer's error is an outage: nothing is lost, but a line that was cut
// off may be followed by its repetition.
//
// A Sink owns one goroutine, which ends in Close. A writer that blocks for ever keeps that goroutine (a write to an os.File
// cannot be cancelled), but not Close.
package stdout

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Sink is a sink.Sink over one io.Writer, of which it must be the only user.
type Sink struct {
	w   io.Writer
	may func() bool // sink.Limits.May

	mu      sync.Mutex
	queue   []batch
	current batch // being written, without results
	closed  bool  // no new batches
	cut     bool  // Close has reported all results: later ones are dropped
	failure error // of the last write, until a probe has returned it

	handOver sync.Mutex // held while done is called, so that Close can wait for it; taken before mu

	wake    chan struct{} // gets a token when queue or closed changed
	stopped chan struct{} // closed when the goroutine has ended
}

type batch struct {
	messages []*outbox.Message
	done     func([]sink.Result)
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink that writes to w. It does no I/O.
func New(w io.Writer) *Sink {
	s := &Sink{w: w, wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	go s.run()
	return s
}

// Send implements sink.Sink.
func (s *Sink) Send(messages []*outbox.Message, done func([]sink.Result)) {
	if len(messages) == 0 {
		return
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.queue = append(s.queue, batch{messages, done})
	}
	s.mu.Unlock()
	if closed {
		go done(sink.Results(messages, sink.Closed)) // the caller may hold a lock that done needs
		return
	}
	s.signal()
}

func (s *Sink) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Sink) run() {
	defer close(s.stopped)
	var lines bytes.Buffer
	for range s.wake {
		for {
			b, more := s.next()
			if !more {
				break
			}
			s.answer(b, s.write(&lines, b.messages))
		}
		if s.isClosed() {
			return
		}
	}
}

func (s *Sink) next() (batch, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return batch{}, false
	}
	b := s.queue[0]
	s.queue = s.queue[1:]
	s.current = b
	return b, true
}

func (s *Sink) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// write writes a batch in one call. After an error the number of bytes says which messages were written.
func (s *Sink) write(lines *bytes.Buffer, messages []*outbox.Message) []sink.Result {
	out := sink.Results(messages, outbox.Outcome{})
	lines.Reset()
	encoder := json.NewEncoder(lines)
	encoder.SetEscapeHTML(false)
	ends := make([]int, len(messages))
	for i, m := range messages {
		if reason := refusal(m); reason != "" {
			out[i].Class, out[i].Reason = outbox.ClassPermanent, reason
		} else if err := encoder.Encode(lineOf(m)); err != nil { // texts only: it cannot fail
			out[i].Class, out[i].Reason = outbox.ClassRefused, "encode as JSON: "+err.Error()
		}
		ends[i] = lines.Len()
	}
	n, err := 0, sink.ErrMayNot
	if s.may == nil || s.may() {
		n, err = s.w.Write(lines.Bytes())
	}
	s.mu.Lock()
	s.failure = err
	s.mu.Unlock()
	for i := range out {
		if err != nil && out[i].Class == outbox.ClassNone && ends[i] > n {
			out[i].Outcome = outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: "write to standard output: " + err.Error()}
		}
	}
	return out
}

// refusal returns why a message cannot be written unchanged: JSON is UTF-8, only bodies and header values have a form for other
// bytes.
func refusal(m *outbox.Message) string {
	if m.Topic == "" {
		return "the message has no topic"
	}
	for _, text := range []string{m.Topic, m.MessageID, m.ID, m.Table, m.Key, m.ShardingKey, m.Tag, m.BizType} {
		if !utf8.ValidString(text) {
			return fmt.Sprintf("%q is not UTF-8 and cannot be written as JSON", text)
		}
	}
	for _, h := range m.Headers {
		if !utf8.ValidString(h.Name) {
			return fmt.Sprintf("header name %q is not UTF-8 and cannot be written as JSON", h.Name)
		}
	}
	return ""
}

// answer reports results, unless Close has reported these messages already.
func (s *Sink) answer(b batch, results []sink.Result) {
	s.handOver.Lock()
	defer s.handOver.Unlock()
	s.mu.Lock()
	cut := s.cut
	s.current = batch{}
	s.mu.Unlock()
	if !cut {
		b.done(results)
	}
}

// Probe implements sink.Sink. A writer can only be tested by a write, so Probe fails once after a failed write: the breaker then
// waits before the next message.
func (s *Sink) Probe(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	failure := s.failure
	s.failure = nil
	if s.closed {
		return errors.New("the sink is closed")
	}
	if failure != nil {
		return fmt.Errorf("the last write to standard output failed: %w", failure)
	}
	return nil
}

// Topics implements sink.Sink: every topic exists.
func (s *Sink) Topics(context.Context, []string) (map[string]error, error) {
	return map[string]error{}, nil
}

// Close implements sink.Sink. It does not close the writer. Its error says that the writer did not accept everything in time.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.signal()
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
	}
	n := 0
	for _, b := range s.abandon() {
		b.done(sink.Results(b.messages, uncertain))
		n += len(b.messages)
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("close standard output sink: %d messages were not written in time", n)
}

// uncertain is the outcome of messages that Close did not wait for.
var uncertain = outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster, Reason: "the sink was closed before the line was written"}

// abandon returns the messages without results, and makes sure that no other goroutine reports them: a call of done ends first.
func (s *Sink) abandon() []batch {
	s.handOver.Lock()
	defer s.handOver.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
	left := s.queue
	if s.current.done != nil {
		left = append([]batch{s.current}, left...)
	}
	s.queue = nil
	return left
}

// line is the JSON form of a message. It has body when the body is UTF-8, body_base64 when it is not, neither for SQL NULL.
type line struct {
	MessageID   string   `json:"message_id"`
	Table       string   `json:"table"`
	ID          string   `json:"id"`
	Topic       string   `json:"topic"`
	Key         string   `json:"key,omitempty"`
	ShardingKey string   `json:"sharding_key,omitempty"` // only if it differs from the key
	Tag         string   `json:"tag,omitempty"`
	BizType     string   `json:"biz_type,omitempty"`
	Partition   *int32   `json:"partition,omitempty"`
	Headers     []header `json:"headers,omitempty"`
	Body        *string  `json:"body,omitempty"`
	BodyBase64  *string  `json:"body_base64,omitempty"`
}

// header is a pair, not a member of an object, because names may repeat.
type header struct {
	Name        string `json:"name"`
	Value       string `json:"value,omitempty"`
	ValueBase64 string `json:"value_base64,omitempty"` // if the value is not UTF-8
}

func lineOf(m *outbox.Message) line {
	l := line{
		MessageID: m.MessageID, Table: m.Table, ID: m.ID, Topic: m.Topic, Key: m.Key, Tag: m.Tag, BizType: m.BizType,
	}
	if m.ShardingKey != m.Key {
		l.ShardingKey = m.ShardingKey
	}
	if m.Partition != outbox.NoPartition {
		l.Partition = &m.Partition
	}
	for _, h := range m.Headers {
		if utf8.ValidString(h.Value) {
			l.Headers = append(l.Headers, header{Name: h.Name, Value: h.Value})
		} else {
			l.Headers = append(l.Headers, header{Name: h.Name, ValueBase64: base64.StdEncoding.EncodeToString([]byte(h.Value))})
		}
	}
	switch {
	case m.Body == nil:
	case utf8.Valid(m.Body):
		text := string(m.Body)
		l.Body = &text
	default:
		text := base64.StdEncoding.EncodeToString(m.Body)
		l.BodyBase64 = &text
	}
	return l
}
