package testkit

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// KafkaFault makes a kfake cluster answer requests with an error. It covers Produce, InitProducerID and DescribeConfigs.
// A request that matches is refused and does nothing, except with REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND,
// which a real broker gives to what it has stored: so does the fault.
type KafkaFault struct {
	Key        kmsg.Key
	Topic      string                  // of a produce request; "" means all
	Partitions []int32                 // of a produce request; nil means all. The others of the request are stored.
	When       func(kmsg.Request) bool // further condition, nil means none; it must not call the cluster
	Err        *kerr.Error
	Count      int // requests to answer so; 0 means one, -1 all until Remove
}

// KafkaFaultHandle is a fault that was installed.
type KafkaFaultHandle struct {
	cluster *kfake.Cluster
	fault   KafkaFault
	addrs   []string
	hits    atomic.Int64
	removed atomic.Bool
	once    sync.Once
	client  *kgo.Client // carries what is stored in spite of the fault
	closed  func(func())
}

// FaultKafka installs a fault. Faults and the cluster's control functions run in the order in which they were added.
func FaultKafka(t testing.TB, c *kfake.Cluster, f KafkaFault) *KafkaFaultHandle {
	t.Helper()
	if f.Count == 0 {
		f.Count = 1
	}
	h := &KafkaFaultHandle{cluster: c, fault: f, addrs: c.ListenAddrs(), closed: t.Cleanup}
	c.ControlKey(int16(f.Key), h.control)
	return h
}

// Hits counts the requests that were answered with the error.
func (h *KafkaFaultHandle) Hits() int { return int(h.hits.Load()) }

// Remove ends the fault.
func (h *KafkaFaultHandle) Remove() { h.removed.Store(true) }

// control runs in the cluster's goroutine, one request at a time.
func (h *KafkaFaultHandle) control(req kmsg.Request) (kmsg.Response, error, bool) {
	h.cluster.KeepControl()
	if h.removed.Load() || h.fault.Count > 0 && h.Hits() >= h.fault.Count {
		return nil, nil, false
	}
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		return h.produce(req)
	case *kmsg.InitProducerIDRequest:
		if !h.matches(req) {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = h.fault.Err.Code
		return resp, nil, true
	case *kmsg.DescribeConfigsRequest:
		if !h.matches(req) {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.Resources {
			refused := kmsg.NewDescribeConfigsResponseResource()
			refused.ResourceType, refused.ResourceName, refused.ErrorCode = r.ResourceType, r.ResourceName, h.fault.Err.Code
			resp.Resources = append(resp.Resources, refused)
		}
		return resp, nil, true
	}
	panic("testkit: no fault for this kind of request")
}

func (h *KafkaFaultHandle) matches(req kmsg.Request) bool {
	if h.fault.When != nil && !h.fault.When(req) {
		return false
	}
	h.hits.Add(1)
	return true
}

// carried marks, in the time-out of which kfake takes no notice, requests that the fault itself sends.
const carried = 7_654_321

func (h *KafkaFaultHandle) produce(req *kmsg.ProduceRequest) (kmsg.Response, error, bool) {
	if req.TimeoutMillis == carried {
		return nil, nil, false
	}
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	rest := *req // what is stored
	rest.TimeoutMillis, rest.Topics = carried, nil
	faulty := 0
	for _, topic := range req.Topics {
		if topic.Topic == "" {
			if info := h.cluster.TopicIDInfo(topic.TopicID); info != nil {
				topic.Topic = info.Topic
			}
		}
		bad, good := topic, topic
		bad.Partitions, good.Partitions = nil, nil
		for _, p := range topic.Partitions {
			if h.hitsPartition(topic.Topic, p.Partition) {
				bad.Partitions = append(bad.Partitions, p)
			} else {
				good.Partitions = append(good.Partitions, p)
			}
		}
		faulty += len(bad.Partitions)
		if h.storesAnyhow() {
			good.Partitions = topic.Partitions
		}
		if len(good.Partitions) > 0 {
			rest.Topics = append(rest.Topics, good)
		}
		resp.Topics = append(resp.Topics, h.refusal(bad))
	}
	if faulty == 0 || !h.matches(req) {
		return nil, nil, false
	}
	if len(rest.Topics) > 0 {
		stored, err := h.store(&rest)
		if err != nil {
			return nil, err, true // the connection breaks
		}
		merge(resp, stored)
	}
	return resp, nil, true
}

func (h *KafkaFaultHandle) hitsPartition(topic string, partition int32) bool {
	return (h.fault.Topic == "" || h.fault.Topic == topic) &&
		(h.fault.Partitions == nil || slices.Contains(h.fault.Partitions, partition))
}

func (h *KafkaFaultHandle) storesAnyhow() bool {
	return h.fault.Err == kerr.RequestTimedOut || h.fault.Err == kerr.NotEnoughReplicasAfterAppend
}

// refusal answers for the partitions that the fault hits, none of them perhaps.
func (h *KafkaFaultHandle) refusal(topic kmsg.ProduceRequestTopic) kmsg.ProduceResponseTopic {
	out := kmsg.NewProduceResponseTopic()
	out.Topic, out.TopicID = topic.Topic, topic.TopicID
	for _, p := range topic.Partitions {
		refused := kmsg.NewProduceResponseTopicPartition()
		refused.Partition, refused.ErrorCode = p.Partition, h.fault.Err.Code
		out.Partitions = append(out.Partitions, refused)
	}
	return out
}

// merge adds what the broker said about partitions that the fault leaves alone.
func merge(resp, stored *kmsg.ProduceResponse) {
	for _, s := range stored.Topics {
		for i := range resp.Topics {
			to := &resp.Topics[i]
			if to.TopicID != s.TopicID || s.Topic != "" && to.Topic != s.Topic {
				continue
			}
			for _, p := range s.Partitions {
				answered := func(q kmsg.ProduceResponseTopicPartition) bool { return q.Partition == p.Partition }
				if !slices.ContainsFunc(to.Partitions, answered) {
					to.Partitions = append(to.Partitions, p)
				}
			}
		}
	}
}

// store sends a request to the broker that got it, over a connection of its own.
func (h *KafkaFaultHandle) store(req *kmsg.ProduceRequest) (resp *kmsg.ProduceResponse, err error) {
	node := h.cluster.CurrentNode()
	h.cluster.SleepControl(func() {
		h.once.Do(func() {
			if h.client, err = kgo.NewClient(kgo.SeedBrokers(h.addrs...)); err == nil {
				h.closed(h.client.Close)
			}
		})
		if h.client == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var answer kmsg.Response
		if answer, err = h.client.Broker(int(node)).RetriableRequest(ctx, req); err == nil {
			resp = answer.(*kmsg.ProduceResponse)
		}
	})
	if resp == nil && err == nil {
		err = context.Canceled
	}
	return resp, err
}
