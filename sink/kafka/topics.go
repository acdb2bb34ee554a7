package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bits of the operations READ and WRITE in a set of authorised operations (org.apache.kafka.common.acl.AclOperation).
const (
	aclRead  = 1 << 3
	aclWrite = 1 << 4
)

// Topics implements sink.Sink with a metadata request that creates no topic. Whether the topic can be written is known only from
// brokers that report the client's rights (2.3 and later).
func (s *Sink) Topics(ctx context.Context, topics []string) (map[string]error, error) {
	faults := map[string]error{}
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, topic := range topics {
		if reason := topicFault(topic); reason != "" {
			faults[topic] = &sink.TopicNameError{Why: reason}
			continue
		}
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
	}
	if len(req.Topics) == 0 { // an empty list would ask for all
		return faults, nil
	}
	resp, err := s.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		if fault := faultOf(t); fault != nil {
			faults[*t.Topic] = fault
		}
	}
	return faults, nil
}

func (s *Sink) ask(ctx context.Context, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	client := s.current()
	resp, err := within(ctx, func() (*kmsg.MetadataResponse, error) { return req.RequestWith(ctx, client) })
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for its topics: %w", err)
	}
	return resp, nil
}

// unreadable returns which of the topics the account may not read, as far as brokers report it (2.3 and later).
func (s *Sink) unreadable(ctx context.Context, topics []string) (without []string, err error) {
	if len(topics) == 0 {
		return nil, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
	}
	resp, err := s.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil && t.AuthorizedOperations != math.MinInt32 && t.AuthorizedOperations&aclRead == 0 {
			without = append(without, *t.Topic)
		}
	}
	return without, nil
}

func faultOf(t *kmsg.MetadataResponseTopic) error {
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		_, reason := classify(err)
		return errors.New(reason)
	}
	if t.AuthorizedOperations != math.MinInt32 && t.AuthorizedOperations&aclWrite == 0 {
		return errors.New("the user of sink.kafka.sasl may not write to the topic: grant WRITE")
	}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !errors.Is(err, kerr.ReplicaNotAvailable) {
			return fmt.Errorf("partition %d: %w", p.Partition, err)
		}
	}
	return nil
}
