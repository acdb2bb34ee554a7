package rocketmq

import (
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// item is a message and the Send that waits for its result.
type item struct {
	message *outbox.Message
	from    *delivery
}

// delivery is one call of Send.
type delivery struct {
	done func([]sink.Result)
}

// queue is one write queue of a topic. queues.mu guards pending, spare and busy. At most one worker has it at a time, so its
// messages are sent one request after the other: the broker's own send threads would not keep the order of two.
type queue struct {
	topic   *topic
	broker  *broker
	index   int // in the topic's list: what Message.Partition means
	id      int // the broker's number
	target  *primitive.MessageQueue
	pending []item
	spare   []item // the slice of the last batch, for reuse
	busy    bool   // in the ready list or with a worker
}

func newQueue(t *topic, b *broker, index, id int) *queue {
	return &queue{
		topic: t, broker: b, index: index, id: id,
		target: &primitive.MessageQueue{Topic: t.name, BrokerName: b.name, QueueId: id},
	}
}

// take removes the next batch: the waiting messages, within the limits of one request. Called with the lock held.
func (q *queue) take(bytes int) []item {
	n, size := 0, 0
	for n < len(q.pending) && n < maxBatchMessages {
		size += q.pending[n].message.Size()
		if n > 0 && size > bytes {
			break
		}
		n++
	}
	batch := q.pending[:n:n]
	if n == len(q.pending) {
		q.pending, q.spare = q.spare, nil
	} else {
		q.pending = q.pending[n:]
	}
	return batch
}

// queues counts the messages without a result, and lists the queues that workers may send.
type queues struct {
	batchBytes int

	mu          sync.Mutex // guards topics and their queues, too
	wake        *sync.Cond // ready grew, or the workers may end
	ready       []*queue
	outstanding int // messages without a result
	closed      bool
	empty       chan struct{} // closed when nothing is outstanding after the close
}

func newQueues(batchBytes int) *queues {
	s := &queues{batchBytes: batchBytes, empty: make(chan struct{})}
	s.wake = sync.NewCond(&s.mu)
	return s
}

// enqueue puts a message into its queue, and the queue into the ready list unless a worker has it. Called with the lock held.
func (s *queues) enqueue(q *queue, it item) {
	q.pending = append(q.pending, it)
	q.topic.outstanding++
	if !q.busy {
		q.busy = true
		s.ready = append(s.ready, q)
		s.wake.Signal()
	}
}

// next waits for a queue with messages; nil when the sink is closed and nothing is outstanding.
func (s *queues) next() (*queue, []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.ready) == 0 {
		if s.closed && s.outstanding == 0 {
			return nil, nil
		}
		s.wake.Wait()
	}
	q := s.ready[0]
	s.ready = s.ready[1:]
	return q, q.take(s.batchBytes)
}

// settled counts messages that have their result. Called with the lock held.
func (s *queues) settled(n int) {
	s.outstanding -= n
	if n > 0 && s.closed && s.outstanding == 0 {
		s.end()
	}
}

func (s *queues) end() {
	close(s.empty)
	s.wake.Broadcast()
}

// close stops intake; false when it was stopped before.
func (s *queues) close() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.closed
	s.closed = true
	if first && s.outstanding == 0 {
		s.end()
	}
	return first
}

// answer reports one outcome for messages outside a batch.
func (s *queues) answer(items []item, o outbox.Outcome) {
	report(items, func(int) outbox.Outcome { return o })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled(len(items))
}

// report calls each sender once for every run of its messages.
func report(items []item, outcome func(int) outbox.Outcome) {
	for start := 0; start < len(items); {
		end := start + 1
		for end < len(items) && items[end].from == items[start].from {
			end++
		}
		results := make([]sink.Result, end-start)
		for i := range results {
			results[i] = sink.Result{Message: items[start+i].message, Outcome: outcome(start + i)}
		}
		items[start].from.done(results)
		start = end
	}
}
