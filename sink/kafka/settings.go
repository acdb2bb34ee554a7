package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicSettings is what the brokers make of a topic's messages. A number is 0 where the brokers do not tell it.
type TopicSettings struct {
	// MaxMessageBytes is the largest record batch that the topic takes.
	MaxMessageBytes int
	// Replicas is how many copies the partition with the fewest of them has when all brokers are well.
	Replicas int
	// MinInSync is how many copies there are at least when a message is acknowledged.
	MinInSync int
	// Compacted tells that the topic keeps the last record of each key for certain, and of others what it has not come to yet.
	Compacted bool
	// Err says why MaxMessageBytes, MinInSync and Compacted are not known: mostly that the account may not DESCRIBE_CONFIGS.
	Err error
}

const (
	maxMessageBytes   = "max.message.bytes"
	minInSyncReplicas = "min.insync.replicas"
	cleanupPolicy     = "cleanup.policy"
)

// Settings asks the cluster for the settings of topics. A topic that does not exist is not in the answer. An error means
// that the cluster could not be asked. It speaks the protocol itself: the library's admin client gives up all topics when the account
// may not describe one.
func (s *Sink) Settings(ctx context.Context, topics []string) (map[string]TopicSettings, error) {
	if len(topics) == 0 { // an empty list would ask for all
		return nil, nil
	}
	ask, describe := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		ask.Topics = append(ask.Topics, topic)
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, name
		resource.ConfigNames = []string{maxMessageBytes, minInSyncReplicas, cleanupPolicy}
		describe.Resources = append(describe.Resources, resource)
	}
	metadata, err := ask.RequestWith(ctx, s.current())
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for the replicas of topics: %w", err)
	}
	settings := map[string]TopicSettings{}
	for i := range metadata.Topics {
		if t := &metadata.Topics[i]; t.Topic != nil && t.ErrorCode == 0 {
			settings[*t.Topic] = TopicSettings{Replicas: fewestReplicas(t)}
		}
	}
	configs, err := describe.RequestWith(ctx, s.current())
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for the settings of topics: %w", err)
	}
	for i := range configs.Resources {
		r := &configs.Resources[i]
		if one, exists := settings[r.ResourceName]; exists {
			one.take(r)
			settings[r.ResourceName] = one
		}
	}
	return settings, nil
}

func fewestReplicas(t *kmsg.MetadataResponseTopic) (fewest int) {
	for i := range t.Partitions {
		if n := len(t.Partitions[i].Replicas); i == 0 || n < fewest {
			fewest = n
		}
	}
	return fewest
}

func (t *TopicSettings) take(r *kmsg.DescribeConfigsResponseResource) {
	if t.Err = kerr.ErrorForCode(r.ErrorCode); t.Err != nil {
		return
	}
	for _, c := range r.Configs {
		if c.Value == nil {
			continue
		}
		if c.Name == cleanupPolicy { // delete, compact, or both
			t.Compacted = strings.Contains(*c.Value, "compact")
			continue
		}
		n, err := strconv.Atoi(*c.Value)
		if err != nil {
			continue // another program's idea of the setting: as good as not told
		}
		switch c.Name {
		case maxMessageBytes:
			t.MaxMessageBytes = n
		case minInSyncReplicas:
			t.MinInSync = n
		}
	}
}
