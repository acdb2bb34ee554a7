package rocketmq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// route is where a topic can be written.
type route struct {
	queues  []place           // sorted, so that equal queues give equal lists
	brokers map[string]string // name to address of the master
}

// place identifies a queue in the cluster.
type place struct {
	broker string
	id     int
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.broker, q.broker), cmp.Compare(p.id, q.id))
}

const (
	masterID       = "0"
	permitsWriting = 2 // bit of a topic's permission on a broker
)

type brokerData struct {
	Name  string            `json:"brokerName"`
	Addrs map[string]string `json:"brokerAddrs"`
}

// numberKeys matches an object key without quotes: name servers before 4.9.4 write them, and later ones for clients that do not
// request standard JSON.
var numberKeys = regexp.MustCompile(`([{,])(\d+):`)

func decodeStandard(body []byte, into any) error {
	return json.Unmarshal(numberKeys.ReplaceAll(body, []byte(`$1"$2":`)), into)
}

// route looks up a topic's route. A *remoteError with codeNoTopic means that no registered broker has it.
func (r *remoting) route(ctx context.Context, topic string) (*route, error) {
	body, err := r.askNames(ctx, requestRoute, map[string]string{"topic": topic})
	if err != nil {
		return nil, err
	}
	var data struct {
		Queues []struct {
			Broker string `json:"brokerName"`
			Write  int    `json:"writeQueueNums"`
			Perm   int    `json:"perm"`
		} `json:"queueDatas"`
		Brokers []brokerData `json:"brokerDatas"`
	}
	if err := decodeStandard(body, &data); err != nil {
		return nil, fmt.Errorf("route of topic %s: %w", topic, err)
	}
	found := &route{brokers: masters(data.Brokers)}
	for _, q := range data.Queues {
		if q.Perm&permitsWriting == 0 || found.brokers[q.Broker] == "" {
			continue
		}
		for id := range q.Write {
			found.queues = append(found.queues, place{q.Broker, id})
		}
	}
	slices.SortFunc(found.queues, place.compare)
	return found, nil
}

// brokers lists the masters of the cluster, name to address.
func (r *remoting) brokers(ctx context.Context) (map[string]string, error) {
	body, err := r.askNames(ctx, requestClusters, nil)
	if err != nil {
		return nil, err
	}
	var data struct {
		Brokers map[string]brokerData `json:"brokerAddrTable"`
	}
	if err := decodeStandard(body, &data); err != nil {
		return nil, fmt.Errorf("list of brokers: %w", err)
	}
	var list []brokerData
	for name, b := range data.Brokers {
		list = append(list, brokerData{name, b.Addrs})
	}
	return masters(list), nil
}

func masters(list []brokerData) map[string]string {
	found := map[string]string{}
	for _, b := range list {
		if addr := b.Addrs[masterID]; addr != "" {
			found[b.Name] = addr
		}
	}
	return found
}

// locate looks up a topic's route. Without one the outcome is that of its messages.
func (r *remoting) locate(ctx context.Context, topic string) (*route, outbox.Outcome) {
	if fault := topicFault(topic); fault != "" {
		return nil, outbox.Outcome{Class: outbox.ClassPermanent, Reason: reason("%s", fault)}
	}
	found, err := r.route(ctx, topic)
	var refused *remoteError
	switch {
	case errors.As(err, &refused) && refused.code == codeNoTopic:
		return nil, r.missing(ctx, topic)
	case errors.As(err, &refused):
		class := classifyCode(refused.code, refused.remark).class
		return nil, outbox.Outcome{
			Class: class, Scope: max(class.Scope(), outbox.ScopeTopic), Reason: reason("the name server answers for topic %s: %v", topic, err),
		}
	case err != nil:
		return nil, outage("no name server has a route of topic %s: %v", topic, err)
	case len(found.queues) == 0:
		return nil, noTopic("topic %s has no queue that may be written: check its permission and writeQueueNums", topic)
	}
	return found, outbox.Outcome{}
}

// missing distinguishes a missing topic from a cluster whose brokers are all away: a broker that stops removes its topics from the name
// server, and both look the same there.
func (r *remoting) missing(ctx context.Context, topic string) outbox.Outcome {
	brokers, err := r.brokers(ctx)
	switch {
	case err != nil && !errors.As(err, new(*remoteError)):
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
		_, fault := s.remote.locate(ctx, topic)
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
