package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

var _ sink.CommittedReader = (*Sink)(nil)

const (
	commitPause = 100 * time.Millisecond // between two questions for what a broker has flushed and copied
	stateLimit  = 10 * time.Second       // of such a question: a broker that is busy collects its statistics for more than a second
)

// Committed implements sink.CommittedReader. Consumers get a message when it is in its queue, which is some time after it was stored and
// acknowledged, and may be before it is on the disk and on replicas. So each broker of the topic is asked how far its commit log is queued,
// flushed and copied, until that covers what the log held at the call, as far as the broker waits for it before it acknowledges. With durability
// lenient a stored message counts as sent: only the queues count, and a broker that does not say how far they are is taken at what they show.
func (s *Sink) Committed(ctx context.Context, topic string) error {
	found, err := s.readable(ctx, topic)
	if err != nil {
		return fmt.Errorf("topic %s: %w", topic, err)
	}
	for _, q := range found.Queues {
		if err := s.brokerCommitted(ctx, found.Masters[q.Broker]); err != nil {
			return fmt.Errorf("broker %s was asked whether what it has stored is queued, flushed and copied: %w", q.Broker, err)
		}
	}
	return nil
}

// brokerCommitted is Committed for one broker.
func (s *Sink) brokerCommitted(ctx context.Context, addr string) error {
	var waits remoting.Waits
	if !s.alone.lenient {
		var err error
		if waits, err = s.remote.Waits(ctx, stateLimit, addr); err != nil {
			return err
		}
	}
	for need, before := int64(-1), int64(0); ; {
		log, err := s.remote.CommitLog(ctx, stateLimit, addr, waits)
		switch {
		case err == nil && need < 0:
			need, before = log.End, log.End
		case err == nil: // the log reached before at the least when the other figures were taken
			if before-max(log.Unflushed, log.Unqueued) >= need && log.Copied >= need {
				return nil
			}
			before = log.End
		case remoting.IsCode(err, remoting.SystemError): // a broker that has just started has no statistics yet
		case s.alone.lenient && ctx.Err() == nil: // it does not say, or the account may not ask: what its queues show counts
			return nil
		default:
			return err
		}
		if !outbox.Wait(ctx, commitPause, nil) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// unreadable returns why a topic cannot be read back. It adds the topic's brokers, name to address, which Committed would ask.
func (s *Sink) unreadable(ctx context.Context, topic string, brokers map[string]string) error {
	found, err := s.readable(ctx, topic)
	if err != nil {
		return err
	}
	for _, q := range found.Queues {
		if err := s.readNewest(ctx, topic, found.Masters[q.Broker]); err != nil {
			return fmt.Errorf("broker %s: %w", q.Broker, err)
		}
		brokers[q.Broker] = found.Masters[q.Broker]
	}
	return nil
}

// readNewest reads the newest message of a topic's first queue on a broker, if there is one: brokers check the rights when they are asked for
// messages.
func (s *Sink) readNewest(ctx context.Context, topic, addr string) error {
	conn, err := s.remote.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	end, err := conn.Offset(remoting.MaxOffset, topic, 0, nil)
	if err != nil || end == 0 {
		return err
	}
	_, err = conn.Read(s.group, topic, 0, end-1, end, func(remoting.Message) (bool, error) { return false, nil })
	return err
}
