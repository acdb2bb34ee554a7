package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Broker is what the check of the broker needs.
type Broker struct {
	Open    func() (sink.Sink, error) // does no I/O
	MaxBody setting.Bytes             // the size above which a body is refused; 0: none
	// ReadBack says that the relay is to read the topics after a kill.
	ReadBack bool
	// Kind runs the checks of an open sink that only its kind has.
	Kind func(ctx context.Context, opened sink.Sink, newest sink.Newest) []server.Finding
}

// Check queries the broker about the topics of the newest rows, without publishing; largest is the largest body of each, in
// bytes.
func (b Broker) Check(ctx context.Context, topics []string, largest map[string]int64) []server.Finding {
	c := &brokerCheck{Broker: b, topics: topics, largest: largest}
	c.broker(ctx)
	return c.findings
}

// brokerCheck collects findings about the broker.
type brokerCheck struct {
	Broker
	findings []server.Finding
	topics   []string
	largest  map[string]int64
}

func (d *brokerCheck) add(severity server.Severity, subject, fix, what string, args ...any) {
	d.findings = append(d.findings, server.Finding{Severity: severity, Subject: subject, What: fmt.Sprintf(what, args...), Fix: fix})
}

func (d *brokerCheck) broker(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := d.Open()
	if err != nil {
		d.add(server.Fault, "sink", "", "%v", err)
		return
	}
	defer func() {
		if err := s.Close(ctx); err != nil {
			d.add(server.Warning, "sink", "", "it did not close: %v", err)
		}
	}()
	if err := s.Probe(ctx); err != nil {
		d.add(server.Fault, "sink", "check the addresses and credentials under sink, and that the broker runs", "the broker does not take messages: %v", err)
		return
	}
	d.add(server.OK, "sink", "", "the broker answers")
	d.size()
	faults, err := s.Topics(ctx, d.topics)
	if err != nil {
		d.add(server.Fault, "sink", "", "the broker could not be asked for topics: %v", err)
		return
	}
	sound := d.sound(faults)
	d.findings = append(d.findings, d.Kind(ctx, s, sink.Newest{Topics: sound, Largest: d.largest, ReadBack: d.ReadBack})...)
}

// sound reports on each topic and returns the usable ones.
func (d *brokerCheck) sound(faults map[string]error) (sound []string) {
	for _, topic := range d.topics {
		subject, err := "topic "+topic, faults[topic]
		switch {
		case err == nil:
			d.add(server.OK, subject, "", "exists")
			sound = append(sound, topic)
		case errors.As(err, new(*sink.TopicNameError)): // it cannot be created
			d.add(server.Fault, subject, "correct the topic in the rows, and in the application that writes them", "%v; its rows become FAILED", err)
		default:
			d.add(server.Fault, subject, "create the topic, or allow this account to write to it", "%v; its rows would wait in the table", err)
		}
	}
	return sound
}

// size compares the newest rows with the broker's limit.
func (d *brokerCheck) size() {
	limit := d.MaxBody
	largest := slices.Max(append(slices.Collect(maps.Values(d.largest)), 0))
	if limit > 0 && largest >= int64(limit) {
		d.add(server.Warning, "sink", "raise the limit at the brokers and max_message_bytes here, or keep large content elsewhere",
			"one of the newest rows has a body of %d bytes, and the limit is %v: such rows become FAILED", largest, limit)
	}
}
