package rocketmq

import (
	"context"
	"errors"
	"strconv"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

// route is where a topic can be written.
type route struct {
	queues  []address         // sorted, so that equal queues give equal lists
	brokers map[string]string // name to address of the master
}

// address identifies a queue in the cluster.
type address struct {
	broker string
	id     int
}

// locate looks up where a topic can be written. Without a route the outcome is that of its messages.
func locate(ctx context.Context, remote *remoting.Client, topic string) (*route, outbox.Outcome) {
	if fault := topicFault(topic); fault != "" {
		return nil, outbox.Outcome{Class: outbox.ClassPermanent, Reason: reason("%s", fault)}
	}
	found, err := remote.Route(ctx, topic)
	var refused *remoting.Error
	switch {
	case remoting.IsCode(err, remoting.NoTopic):
		return nil, missing(ctx, remote, topic)
	case errors.As(err, &refused):
		class := classifyCode(refused.Code, refused.Remark).class
		return nil, outbox.Outcome{
			Class: class, Scope: max(class.Scope(), outbox.ScopeTopic), Reason: reason("the name server answers for topic %s: %v", topic, err),
		}
	case err != nil:
		return nil, outage("no name server has a route of topic %s: %v", topic, err)
	}
	r := &route{brokers: found.Masters}
	for _, q := range found.Queues {
		if q.Perm&remoting.MayWrite == 0 || r.brokers[q.Broker] == "" {
			continue
		}
		for id := range q.Write {
			r.queues = append(r.queues, address{q.Broker, id})
		}
	}
	if len(r.queues) == 0 {
		return nil, noTopic("topic %s has no queue that may be written: check its permission and writeQueueNums", topic)
	}
	return r, outbox.Outcome{}
}

// missing distinguishes a missing topic from a cluster whose brokers are all away: a broker that stops removes its topics from the
// name server, and both look the same there.
func missing(ctx context.Context, remote *remoting.Client, topic string) outbox.Outcome {
	brokers, err := remote.Masters(ctx)
	switch {
	case err != nil && !errors.As(err, new(*remoting.Error)):
		return outage("no name server answers: %v", err)
	case err == nil && len(brokers) == 0:
		return outage("no broker is registered with the name servers")
	}
	return noTopic("topic %s does not exist, or the brokers that have it are away: create it, e.g. mqadmin updateTopic -c CLUSTER -t %s", topic, strconv.Quote(topic))
}

// outage is the outcome of every message while no name server or broker answers.
func outage(format string, args ...any) outbox.Outcome {
	return outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: reason(format, args...)}
}

// noTopic is the outcome of every message of a topic that cannot be written.
func noTopic(format string, args ...any) outbox.Outcome {
	return outbox.Outcome{Class: outbox.ClassTopic, Scope: outbox.ScopeTopic, Reason: reason(format, args...)}
}

// Topics checks that each topic has a queue that can be written. Permissions by access list show only when a message is sent.
func (s *Sink) Topics(ctx context.Context, topics []string) (map[string]error, error) {
	faults := map[string]error{}
	for _, topic := range topics {
		_, fault := locate(ctx, s.remote, topic)
		switch fault.Class {
		case outbox.ClassNone:
		case outbox.ClassOutage:
			return faults, errors.New(fault.Reason)
		case outbox.ClassPermanent:
			faults[topic] = &sink.TopicNameError{Why: fault.Reason}
		default:
			faults[topic] = errors.New(fault.Reason)
		}
	}
	return faults, nil
}
