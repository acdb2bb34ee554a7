package kafka

import (
	"errors"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// publish sends messages until each has its outcome. A message that a broker refuses aborts its transaction: the others go again, in order, in
// smaller transactions until the culprit is alone. So one bad message costs about twice the logarithm of their number in transactions.
func (x *Exactly) publish(list []*delivery) {
	parts := [][]*delivery{list}
	for again := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		if len(part) == 0 {
			continue
		}
		e := x.ledger.Next(identities(part))
		if e == nil {
			x.failAll(part, errTooManyOpen)
			continue
		}
		switch t := x.transact(part, e); {
		case t.verdict == committed:
			again = 0
			for _, d := range part {
				x.results.finish(d, x.completion(d, nil))
			}
		case t.verdict == unsure:
			for _, d := range part {
				x.alone(d, unknown.Class, time.Now())
				x.results.finish(d, unknown)
			}
			for _, d := range slices.Concat(parts...) {
				x.results.finish(d, sink.Closed)
			}
			parts = nil
		case t.err != nil && t.began && again == 0 && x.ctx.Err() == nil:
			again++ // a coordinator that moved, an epoch that another process or a time-out ended: a new one may do
			parts = slices.Insert(parts, 0, part)
		case t.err != nil:
			x.failAll(slices.Concat(append([][]*delivery{part}, parts...)...), t.err)
			parts = nil
		default:
			parts = slices.Insert(parts, 0, x.afterFailures(part, t.failed)...)
		}
	}
}

// unknown is the outcome of messages when the sink is stopped before Kafka said whether they are committed.
var unknown = outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster, Reason: "Kafka: " + errClosed.Error()}

// identities returns the rows that a start must find. A row that is sent again because no consumer has finished it is SENT, so its table says what
// a start would, and nothing would ever settle it.
func identities(list []*delivery) []outbox.Identity {
	ids := make([]outbox.Identity, 0, len(list))
	for _, d := range list {
		if d.message.Path != outbox.PathRedelivery {
			ids = append(ids, d.message.Identity)
		}
	}
	return ids
}

// failAll reports a failure that is of no message: nothing of them is or will be visible.
func (x *Exactly) failAll(list []*delivery, err error) {
	o := outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: "Kafka: " + err.Error()}
	if class, advice := classOf(err); class == outbox.ClassService {
		o.Class = class
		o.Reason += "; " + advice
	}
	for _, d := range list {
		x.alone(d, o.Class, time.Now())
		x.results.finish(d, o)
	}
}

// afterFailures reports the messages that failed and no other could be the cause, and returns what is to be sent again. Where a broker
// refused a batch, the culprit is one of its messages.
func (x *Exactly) afterFailures(part []*delivery, failed map[*delivery]error) [][]*delivery {
	topics, partitions := map[string]outbox.Outcome{}, map[Place]outbox.Outcome{}
	suspects := false
	rest := part[:0:0]
	for _, d := range part {
		err, is := failed[d]
		if !is {
			rest = append(rest, d)
			continue
		}
		o := outcome(d, err)
		if (o.Class == outbox.ClassPermanent || o.Class == outbox.ClassRefused) && d.partitions == 0 && len(part) > 1 {
			suspects = true
			rest = append(rest, d)
			continue
		}
		at := Place{d.message.Topic, d.record.Partition}
		o = x.completion(d, err)
		if errors.Is(err, errLate) { // the entry's partition has answered
			o.Scope = outbox.ScopePartition
		}
		switch o.Class {
		case outbox.ClassTopic:
			topics[d.message.Topic] = o
		case outbox.ClassUnknown: // it was aborted: nothing is unknown
			o.Class = outbox.ClassOutage
			fallthrough
		case outbox.ClassOutage:
			if !d.away {
				partitions[at] = o
			}
		}
		x.results.finish(d, o)
	}
	rest = slices.DeleteFunc(rest, func(d *delivery) bool {
		o, is := topics[d.message.Topic]
		if !is {
			o, is = partitions[Place{d.message.Topic, d.record.Partition}]
		}
		if is {
			x.alone(d, o.Class, time.Now())
			x.results.finish(d, o)
		}
		return is
	})
	if half := len(rest) / 2; suspects && half > 0 {
		x.metrics.sentAlone.Add(float64(len(rest)))
		return [][]*delivery{rest[:half], rest[half:]}
	}
	return [][]*delivery{rest}
}
