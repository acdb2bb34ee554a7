package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicSettings are the brokers' settings of a topic. A number is 0 where the brokers do not report it.
type TopicSettings struct {
	// MaxMessageBytes is the largest record batch that the topic accepts.
	MaxMessageBytes int
	// Replicas is the number of replicas of the partition with the fewest.
	Replicas int
	// MinInSync is the minimum number of copies when a message is acknowledged.
	MinInSync int
	// Compacted reports that the topic drops older records of a key.
	Compacted bool
	// Deletes reports that the topic drops records by age or size.
	Deletes bool
	// Err says why MaxMessageBytes, MinInSync, Compacted and Deletes are unknown: usually the account may not DESCRIBE_CONFIGS.
	Err error
}

const (
	maxMessageBytes   = "max.message.bytes"
	minInSyncReplicas = "min.insync.replicas"
	cleanupPolicy     = "cleanup.policy"
)

// Settings reads the settings of topics from the cluster. A missing topic is not in the result. An error means that the cluster
// could not be reached. It uses the protocol directly: the library's admin client fails for all topics when the account may not
// describe one.
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
			t.Compacted, t.Deletes = strings.Contains(*c.Value, "compact"), strings.Contains(*c.Value, "delete")
			continue
		}
		n, err := strconv.Atoi(*c.Value)
		if err != nil {
			continue // another program's form of the setting: treated as not reported
		}
		switch c.Name {
		case maxMessageBytes:
			t.MaxMessageBytes = n
		case minInSyncReplicas:
			t.MinInSync = n
		}
	}
}
