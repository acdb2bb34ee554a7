package testkit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
)

// pingNames succeeds when the name server answers.
func (r *RocketMQ) pingNames(ctx context.Context) error {
	_, _, err := ask(ctx, r.NameServer(), getBrokerClusters, nil)
	return err
}

// pingBroker succeeds when the broker answers and, unless the name server is down, is registered there.
func (r *RocketMQ) pingBroker(ctx context.Context) error {
	if _, _, err := ask(ctx, r.BrokerAddr(), getMaxOffset, map[string]string{"topic": "TBW102", "queueId": "0"}); err != nil {
		return err
	}
	if r.Names.PID() == 0 {
		return nil
	}
	_, body, err := ask(ctx, r.NameServer(), getBrokerClusters, nil)
	if err == nil && !bytes.Contains(body, []byte(r.BrokerAddr())) {
		err = fmt.Errorf("the broker is not registered with the name server")
	}
	return err
}

// CreateTopic makes a topic with that many queues and returns when clients can find it. That takes milliseconds, or up to
// ten seconds shortly after the broker's start.
func (r *RocketMQ) CreateTopic(ctx context.Context, name string, queues int) error {
	n := strconv.Itoa(queues)
	_, _, err := ask(ctx, r.BrokerAddr(), createTopic, map[string]string{
		"topic": name, "defaultTopic": "TBW102", "readQueueNums": n, "writeQueueNums": n,
		"perm": strconv.Itoa(readWrite), "topicFilterType": singleTag, "topicSysFlag": "0", "order": "false",
	})
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	for {
		found, err := route(ctx, r.NameServer(), name)
		if err == nil && len(found) > 0 && found[0].queues == queues {
			return nil
		}
		if stop := pause(ctx); stop != nil {
			return fmt.Errorf("create topic %s: clients cannot find it: %w (%v)", name, stop, err)
		}
	}
}

// routeEntry is a broker that has a topic.
type routeEntry struct {
	addr   string // of the broker's master
	queues int    // readable ones, numbered from 0
}

// route asks a name server where a topic is.
func route(ctx context.Context, nameServer, topic string) ([]routeEntry, error) {
	// Without the second field the answer is a JSON dialect with numbers as object keys.
	_, body, err := ask(ctx, nameServer, getRouteByTopic, map[string]string{"topic": topic, "acceptStandardJsonOnly": "true"})
	if err != nil {
		return nil, fmt.Errorf("route of topic %s: %w", topic, err)
	}
	var data struct {
		QueueDatas []struct {
			BrokerName    string
			ReadQueueNums int
		}
		BrokerDatas []struct {
			BrokerName  string
			BrokerAddrs map[string]string
		}
	}
	if err := json.Unmarshal(body, &data); err != nil {
		return nil, fmt.Errorf("route of topic %s: %w", topic, err)
	}
	var entries []routeEntry
	for _, q := range data.QueueDatas {
		for _, b := range data.BrokerDatas {
			if b.BrokerName == q.BrokerName && b.BrokerAddrs["0"] != "" {
				entries = append(entries, routeEntry{addr: b.BrokerAddrs["0"], queues: q.ReadQueueNums})
			}
		}
	}
	return entries, nil
}

// ReadRocketMQTopic returns all messages that the topic's queues held at the time of the call, by queue and then by
// offset. The broker fills the queues some milliseconds after it has acknowledged a message, so wait for the expected
// number. Delayed messages appear when they are due.
func ReadRocketMQTopic(ctx context.Context, nameServer, topic string) ([]RocketMQMessage, error) {
	entries, err := route(ctx, nameServer, topic)
	if err != nil {
		return nil, err
	}
	var all []RocketMQMessage
	for _, e := range entries {
		messages, err := readBroker(ctx, e, topic)
		if err != nil {
			return nil, fmt.Errorf("read topic %s from %s: %w", topic, e.addr, err)
		}
		all = append(all, messages...)
	}
	return all, nil
}

func readBroker(ctx context.Context, e routeEntry, topic string) ([]RocketMQMessage, error) {
	conn, err := dialRemoting(ctx, e.addr)
	if err != nil {
		return nil, err
	}
	defer conn.close()
	var all []RocketMQMessage
	for queue := range e.queues {
		from, err := offset(ctx, conn, getMinOffset, topic, queue)
		if err != nil {
			return nil, err
		}
		to, err := offset(ctx, conn, getMaxOffset, topic, queue)
		if err != nil {
			return nil, err
		}
		for from < to {
			messages, next, err := pull(ctx, conn, topic, queue, from)
			if err != nil {
				return nil, err
			}
			for _, m := range messages {
				if m.QueueOffset < to {
					all = append(all, m)
				}
			}
			from = next
		}
	}
	return all, nil
}

func offset(ctx context.Context, conn *remoting, code int, topic string, queue int) (int64, error) {
	response, _, err := conn.call(ctx, code, map[string]string{"topic": topic, "queueId": strconv.Itoa(queue)})
	if err != nil {
		return 0, err
	}
	if response.Code != remotingOK {
		return 0, response.failure()
	}
	return strconv.ParseInt(response.ExtFields["offset"], 10, 64)
}

// pull fetches some messages from an offset and returns the next offset. The subscription comes with the request, so no
// consumer group has to be registered.
func pull(ctx context.Context, conn *remoting, topic string, queue int, from int64) ([]RocketMQMessage, int64, error) {
	const withSubscription = "4"
	response, body, err := conn.call(ctx, pullMessage, map[string]string{
		"consumerGroup": "testkit", "topic": topic, "queueId": strconv.Itoa(queue),
		"queueOffset": strconv.FormatInt(from, 10), "maxMsgNums": "32", "sysFlag": withSubscription,
		"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
	})
	if err != nil {
		return nil, 0, err
	}
	next := from
	switch response.Code {
	case remotingOK, pullNotFound, pullRetry, pullMoved:
		if next, err = strconv.ParseInt(response.ExtFields["nextBeginOffset"], 10, 64); err != nil {
			return nil, 0, fmt.Errorf("next offset: %w", err)
		}
	default:
		return nil, 0, response.failure()
	}
	if response.Code != remotingOK {
		return nil, next, pause(ctx)
	}
	messages, err := decodeMessages(body)
	return messages, next, err
}
