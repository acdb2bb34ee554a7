package bus

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// rocketMQ publishes with one producer, which starts with the first message; each Consume has its own consumer.
type rocketMQ struct {
	names    primitive.NamesrvAddr
	producer rocketmq.Producer
}

func openRocketMQ(nameServer string) (*rocketMQ, error) {
	rlog.SetLogLevel("fatal") // it logs every attempt to reach a broker that is away
	names := primitive.NamesrvAddr{nameServer}
	p, err := rocketmq.NewProducer(producer.WithNameServer(names), producer.WithGroupName("orders"), producer.WithRetry(2))
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("rocketmq %s: %w", nameServer, err)
	}
	return &rocketMQ{names, p}, nil
}

// Publish implements Bus.
func (r *rocketMQ) Publish(ctx context.Context, topic, key, body string) error {
	message := primitive.NewMessage(topic, []byte(body)).WithShardingKey(key)
	result, err := r.producer.SendSync(ctx, message)
	if err == nil && result.Status != primitive.SendOK {
		err = fmt.Errorf("the broker answers with status %d", result.Status)
	}
	if err != nil {
		return fmt.Errorf("publish to %s: %w", topic, err)
	}
	return nil
}

// Close implements Bus.
func (r *rocketMQ) Close() { _ = r.producer.Shutdown() } // its error is of no use here

// Consume implements Bus.
func (r *rocketMQ) Consume(ctx context.Context, group string, topics []string, handle Handler) error {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(r.names), consumer.WithGroupName(group), consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumeMessageBatchMaxSize(1),
		consumer.WithConsumeGoroutineNums(8),
	)
	if err != nil {
		return fmt.Errorf("rocketmq %s: group %s: %w", r.names, group, err)
	}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			if insist(ctx, group, handle, fromRocketMQ(m)) != nil {
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	for _, topic := range topics {
		if err := c.Subscribe(topic, consumer.MessageSelector{}, take); err != nil {
			return fmt.Errorf("group %s: subscribe to %s: %w", group, topic, err)
		}
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	<-ctx.Done()
	return c.Shutdown()
}

func fromRocketMQ(m *primitive.MessageExt) Message {
	return Message{ID: m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex), Kind: m.GetProperty("biz_type"), Body: string(m.Body)}
}
