package rocketmq

import (
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// item is a message and the caller that waits for its result.
type item struct {
	message *outbox.Message
	from    *delivery
}

// delivery is one call of Send.
type delivery struct {
	done func([]sink.Result)
}

// queue is one write queue of a topic. Sink.mu guards pending, spare and busy. At most one worker has it at a time, so its
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

// enqueue puts a message into its queue, and the queue into the ready list unless a worker has it. Called with the lock held.
func (s *Sink) enqueue(q *queue, it item) {
	q.pending = append(q.pending, it)
	q.topic.outstanding++
	if !q.busy {
		q.busy = true
		s.ready = append(s.ready, q)
		s.wake.Signal()
	}
}

// take removes the next batch: the waiting messages, within the limits of one request. Called with the lock held.
func (q *queue) take(messages, bytes int) []item {
	n, size := 0, 0
	for n < len(q.pending) && n < messages {
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

// work is the loop of a worker: take a queue, send one batch of it, release it.
func (s *Sink) work() {
	defer s.workers.Done()
	p := newPublisher(s)
	for {
		q, batch := s.nextBatch()
		if q == nil {
			return
		}
		answered := p.publish(q, batch)
		s.release(q, batch, answered)
	}
}

// nextBatch waits for a queue with messages; nil when the sink is closed and nothing is outstanding.
func (s *Sink) nextBatch() (*queue, []item) {
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
	return q, q.take(s.cfg.MaxBatchMessages, s.batchBytes)
}

// release returns a queue after a batch. answered is the number of its messages with a result (the others are isolated). Other
// ready queues come first.
func (s *Sink) release(q *queue, batch []item, answered int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.spare == nil {
		clear(batch)
		q.spare = batch[:0]
	}
	q.topic.outstanding -= len(batch)
	if len(q.pending) > 0 {
		s.ready = append(s.ready, q)
	} else {
		q.busy = false
		s.adopt(q.topic)
	}
	s.settled(answered)
}

// settled counts messages that have their result. Called with the lock held.
func (s *Sink) settled(n int) {
	s.outstanding -= n
	if s.closed && s.outstanding == 0 {
		s.drained()
		s.wake.Broadcast()
	}
}

// answer reports one outcome for messages that never had a queue.
func (s *Sink) answer(items []item, o outbox.Outcome) {
	if len(items) == 0 {
		return
	}
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
