package testkit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

// RocketMQMessage is a stored message as a consumer gets it.
type RocketMQMessage = remoting.Message

// askLimit bounds one request: a broker on a busy machine may be slow.
const askLimit = 20 * time.Second

// rocketMQ returns a client for requests that the client library does not offer, or whose answer it does not check (its admin
// client takes no notice of a refused CreateTopic).
func rocketMQ(nameServer string) *remoting.Client {
	return &remoting.Client{Names: []string{nameServer}, NamesLimit: askLimit}
}

// pingNames succeeds when the name server answers.
func (r *RocketMQ) pingNames(ctx context.Context) error {
	_, err := rocketMQ(r.NameServer()).Masters(ctx)
	return err
}

// pingBroker succeeds when the broker answers and, unless the name server is down, is registered there.
func (r *RocketMQ) pingBroker(ctx context.Context) error {
	client := rocketMQ(r.NameServer())
	if _, _, err := client.Ask(ctx, askLimit, r.BrokerAddr(), remoting.MaxOffset, map[string]string{"topic": "TBW102", "queueId": "0"}, nil); err != nil {
		return err
	}
	if r.Names.PID() == 0 {
		return nil
	}
	masters, err := client.Masters(ctx)
	if err == nil && !slices.Contains(slices.Collect(maps.Values(masters)), r.BrokerAddr()) {
		err = errors.New("the broker is not registered with the name server")
	}
	return err
}

// CreateTopic creates a topic with that many queues and returns when clients can find it. That takes milliseconds, or up to
// ten seconds shortly after the broker's start.
func (r *RocketMQ) CreateTopic(ctx context.Context, name string, queues int) error {
	return createTopic(ctx, rocketMQ(r.NameServer()), map[string]string{brokerName: r.BrokerAddr()}, name, queues)
}

// everyBroker is a topic that each broker creates for its own check and registers with the name servers.
const everyBroker = "SELF_TEST_TOPIC"

// CreateRocketMQTopic creates a topic with that many queues on all brokers that a name server lists, also of a server that
// testkit did not start, and returns when clients can find it. That may take until the next registration of the brokers.
func CreateRocketMQTopic(ctx context.Context, nameServer, name string, queues int) error {
	client := rocketMQ(nameServer)
	found, err := client.Route(ctx, everyBroker)
	if err != nil {
		return fmt.Errorf("find the brokers of name server %s: %w", nameServer, err)
	}
	return createTopic(ctx, client, found.Masters, name, queues)
}

func createTopic(ctx context.Context, client *remoting.Client, brokers map[string]string, name string, queues int) error {
	n := strconv.Itoa(queues)
	for broker, addr := range brokers {
		_, _, err := client.Ask(ctx, askLimit, addr, remoting.CreateTopic, map[string]string{
			"topic": name, "defaultTopic": "TBW102", "readQueueNums": n, "writeQueueNums": n,
			"perm": strconv.Itoa(readWrite), "topicFilterType": singleTag, "topicSysFlag": "0", "order": "false",
		}, nil)
		if err != nil {
			return fmt.Errorf("create topic %s on broker %s: %w", name, broker, err)
		}
	}
	for {
		found, err := client.Route(ctx, name)
		if err == nil && len(found.Queues) == len(brokers) && !slices.ContainsFunc(found.Queues, func(q remoting.Queues) bool { return q.Read != queues }) {
			return nil
		}
		if stop := pause(ctx); stop != nil {
			return fmt.Errorf("create topic %s: clients cannot find it: %w", name, errors.Join(stop, err))
		}
	}
}

// DeleteRocketMQTopic removes a topic from its brokers and from the name server.
func DeleteRocketMQTopic(ctx context.Context, nameServer, name string) error {
	client := rocketMQ(nameServer)
	found, err := client.Route(ctx, name)
	if err != nil {
		return fmt.Errorf("delete topic %s: %w", name, err)
	}
	for broker, addr := range found.Masters {
		if _, _, err := client.Ask(ctx, askLimit, addr, remoting.DeleteInBroker, map[string]string{"topic": name}, nil); err != nil {
			return fmt.Errorf("delete topic %s on broker %s: %w", name, broker, err)
		}
	}
	if _, _, err := client.Ask(ctx, askLimit, nameServer, remoting.DeleteInNameSrv, map[string]string{"topic": name}, nil); err != nil {
		return fmt.Errorf("delete topic %s in name server %s: %w", name, nameServer, err)
	}
	return nil
}

// ReadRocketMQTopic returns all messages that the topic's queues held at the time of the call, by queue and then by
// offset. The broker fills the queues some milliseconds after it has acknowledged a message, so wait for the expected
// number. Delayed messages appear when they are due.
func ReadRocketMQTopic(ctx context.Context, nameServer, topic string) (all []RocketMQMessage, err error) {
	client := rocketMQ(nameServer)
	found, err := client.Route(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", topic, err)
	}
	for _, queues := range found.Queues {
		messages, err := readBroker(ctx, client, topic, queues, found.Masters[queues.Broker])
		if err != nil {
			return nil, fmt.Errorf("read topic %s of broker %s: %w", topic, queues.Broker, err)
		}
		all = append(all, messages...)
	}
	return all, nil
}

func readBroker(ctx context.Context, client *remoting.Client, topic string, queues remoting.Queues, addr string) (all []RocketMQMessage, err error) {
	conn, err := client.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for queue := range queues.Read {
		from, err := conn.Offset(remoting.MinOffset, topic, queue, nil)
		if err != nil {
			return nil, err
		}
		to, err := conn.Offset(remoting.MaxOffset, topic, queue, nil)
		if err != nil {
			return nil, err
		}
		_, err = conn.Read("testkit", topic, queue, from, to, func(m RocketMQMessage) (bool, error) {
			all = append(all, m)
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
