package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

var _ sink.Reader = (*Sink)(nil)

// Read implements sink.Reader on separate connections: it joins no consumer group and commits no offset. Brokers require the name
// of a group with each pull; it is that of the producers, and where brokers do not create groups by themselves it must exist.
// Messages that a broker's timer holds are not in the topic yet.
func (s *Sink) Read(ctx context.Context, topic string, from, to time.Time, each func(sink.Record) error) (extent sink.Extent, err error) {
	found, err := s.readable(ctx, topic)
	if err != nil {
		return extent, fmt.Errorf("read topic %s: %w", topic, err)
	}
	for _, queues := range found.Queues {
		shortened, err := s.readBroker(ctx, queueReader{topic: topic, from: from, to: to, each: each, group: s.group}, queues, found.Masters[queues.Broker])
		extent.Shortened = extent.Shortened || shortened
		if err != nil {
			return extent, err
		}
	}
	return extent, nil
}

// readable returns the route of a topic of which every queue can be read.
func (s *Sink) readable(ctx context.Context, topic string) (*remoting.Route, error) {
	found, err := s.remote.Route(ctx, topic)
	if remoting.IsCode(err, remoting.NoTopic) {
		return nil, errors.New("it does not exist, or the brokers that have it are away")
	} else if err != nil {
		return nil, err
	}
	for _, q := range found.Queues {
		switch {
		case q.Perm&remoting.MayRead == 0:
			return nil, fmt.Errorf("its permission on broker %s does not allow reading", q.Broker)
		case found.Masters[q.Broker] == "":
			return nil, fmt.Errorf("the master of broker %s is away", q.Broker)
		}
	}
	return found, nil
}

func (s *Sink) readBroker(ctx context.Context, q queueReader, queues remoting.Queues, addr string) (shortened bool, err error) {
	conn, err := s.remote.Dial(ctx, addr)
	if err != nil {
		return false, fmt.Errorf("read topic %s of broker %s: %w", q.topic, queues.Broker, err)
	}
	defer conn.Close()
	q.conn = conn
	for id := range queues.Read {
		q.id, q.name = id, fmt.Sprintf("%s queue %d", queues.Broker, id)
		cut, err := q.read()
		shortened = shortened || cut
		if err != nil {
			return shortened, err
		}
	}
	return shortened, nil
}

// queueReader reads one queue, whose messages are in the order of their store times.
type queueReader struct {
	conn         *remoting.Conn
	topic, group string
	from, to     time.Time
	each         func(sink.Record) error

	id   int
	name string // for people
}

func (q *queueReader) read() (shortened bool, err error) {
	start, end, shortened, err := q.locate()
	var stopped error // by the caller: returned unchanged
	if err == nil {
		var removed bool
		removed, err = q.conn.Read(q.group, q.topic, q.id, start, end, func(m remoting.Message) (more bool, _ error) {
			more, stopped = q.hand(m)
			return more, stopped
		})
		shortened = shortened || removed
	}
	switch {
	case stopped != nil:
		return shortened, stopped
	case remoting.IsCode(err, remoting.NoGroup):
		err = fmt.Errorf("%w; brokers that make no consumer groups need one with the name of sink.rocketmq.group (%s): "+
			"mqadmin updateSubGroup -g %[2]s", err, q.group)
	}
	if err != nil {
		return shortened, fmt.Errorf("read topic %s, %s: %w", q.topic, q.name, err)
	}
	return shortened, nil
}

// locate looks up the start and the end. For a time, old brokers return any message of that millisecond, or the one before; so
// the request is for the previous millisecond, and hand skips what is too old.
func (q *queueReader) locate() (start, end int64, shortened bool, err error) {
	var offsets [3]int64
	for i, ask := range []struct {
		request int
		more    map[string]string
	}{
		{remoting.MinOffset, nil},
		{remoting.MaxOffset, nil},
		{remoting.SearchOffset, map[string]string{"timestamp": strconv.FormatInt(q.from.UnixMilli()-1, 10)}},
	} {
		if offsets[i], err = q.conn.Offset(ask.request, q.topic, q.id, ask.more); err != nil {
			return 0, 0, false, err
		}
	}
	least, start := offsets[0], max(offsets[0], offsets[2])
	return start, offsets[1], least > 0 && start == least, nil
}

// hand passes a message of the range to the caller; more is false behind the range.
func (q *queueReader) hand(m remoting.Message) (more bool, err error) {
	switch {
	case m.Stored.Before(q.from):
		return true, nil
	case !q.to.IsZero() && !m.Stored.Before(q.to):
		return false, nil
	}
	return true, q.each(sink.Record{
		MessageID: m.ID(), Body: m.Body, At: m.Stored, Position: q.name + " offset " + strconv.FormatInt(m.QueueOffset, 10),
	})
}
