package testkit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// everyBroker is a topic that each broker makes for its own check and registers with the name servers.
const everyBroker = "SELF_TEST_TOPIC"

// CreateRocketMQTopic makes a topic with that many queues on all brokers that a name server knows, also of a server that
// testkit did not start, and returns when clients can find it. That may take until the next registration of the brokers.
func CreateRocketMQTopic(ctx context.Context, nameServer, name string, queues int) error {
	brokers, err := route(ctx, nameServer, everyBroker)
	if err != nil {
		return fmt.Errorf("find the brokers of name server %s: %w", nameServer, err)
	}
	n := strconv.Itoa(queues)
	for _, b := range brokers {
		_, _, err := ask(ctx, b.addr, createTopic, map[string]string{
			"topic": name, "defaultTopic": "TBW102", "readQueueNums": n, "writeQueueNums": n,
			"perm": strconv.Itoa(readWrite), "topicFilterType": singleTag, "topicSysFlag": "0", "order": "false",
		})
		if err != nil {
			return fmt.Errorf("create topic %s on broker %s: %w", name, b.addr, err)
		}
	}
	for {
		found, err := route(ctx, nameServer, name)
		if err == nil && len(found) == len(brokers) {
			return nil
		}
		if stop := pause(ctx); stop != nil {
			return fmt.Errorf("create topic %s: clients cannot find it: %w", name, errors.Join(stop, err))
		}
	}
}

// DeleteRocketMQTopic removes a topic from its brokers and from the name server.
func DeleteRocketMQTopic(ctx context.Context, nameServer, name string) error {
	brokers, err := route(ctx, nameServer, name)
	if err != nil {
		return fmt.Errorf("delete topic %s: %w", name, err)
	}
	for _, b := range brokers {
		if _, _, err := ask(ctx, b.addr, deleteTopicInBroker, map[string]string{"topic": name}); err != nil {
			return fmt.Errorf("delete topic %s on broker %s: %w", name, b.addr, err)
		}
	}
	if _, _, err := ask(ctx, nameServer, deleteTopicInNameServer, map[string]string{"topic": name}); err != nil {
		return fmt.Errorf("delete topic %s in name server %s: %w", name, nameServer, err)
	}
	return nil
}

// Request codes of org.apache.rocketmq.remoting.protocol.RequestCode.
const (
	deleteTopicInBroker     = 215
	deleteTopicInNameServer = 216
)
