package dispatch

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/sink"
)

// broker is what is known of the broker: the breaker and the suspended topics.
type broker struct {
	*core
	breaker breaker
	trouble string // why the breaker is not closed, for status
	topics  topics
	lastOK  map[string]time.Time // topic -> last publish, to distinguish the outage of one broker from that of all

	quietSince      time.Time // since when something is in flight without a result
	unansweredSince time.Time // since when there are rows in memory and the broker has answered no message
}

// Closed reports whether the broker takes messages: the breaker is closed.
func (b *broker) Closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.breaker.state == breakerClosed
}

// failed records a message that the broker was not there for, unless the trouble is that of a part of the cluster. Callers hold mu.
func (b *broker) failed(r *sink.Result, part bool, now time.Time) {
	b.trouble = r.Class.String() + ": " + r.Reason
	if !part && b.breaker.failed(now) {
		b.log.Warn("the broker does not take messages: sending paused, no retry counted",
			zap.String("class", r.Class.String()), zap.String("reason", r.Reason))
	}
}

// closed is called when the breaker has closed: it starts a sweep at once for the rows that were left to it meanwhile, and wakes
// all goroutines that wait. Callers hold mu.
func (b *broker) closed() {
	b.sweeps.Trigger()
	b.kick()
	b.broadcast()
}

// probe asks the sink, without a message, whether an open breaker may try one.
func (b *broker) probe(ctx context.Context) {
	b.mu.Lock()
	due := b.breaker.state == breakerOpen && !time.Now().Before(b.breaker.probeAt)
	b.mu.Unlock()
	if !due {
		return
	}
	probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
	err := b.sink.Probe(probeCtx)
	cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.breaker.probed(err == nil, time.Now())
	if err != nil {
		b.trouble = err.Error()
	}
}

// suspend leaves a topic alone for a while. Callers hold mu.
func (b *broker) suspend(topic, reason string, now time.Time) {
	if b.topics.suspend(topic, reason, now) {
		b.log.Warn("topic suspended: its rows stay PENDING, cost no attempt, and flow when it works", zap.String("topic", topic), zap.String("reason", reason))
	}
	b.kick()
}

// resume lets a topic flow again and asks for a sweep of what was left to it. Callers hold mu.
func (b *broker) resume(topic string) {
	if !b.topics.has(topic) {
		return
	}
	delete(b.topics, topic)
	b.tracker.Activity.Disturb()
	b.log.Info("topic works again", zap.String("topic", topic))
	b.sweeps.Trigger()
}

// TryTopics looks at suspended topics at once.
func (b *broker) TryTopics() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.topics {
		t.until = time.Time{}
	}
	b.kick()
}

// probeTopics asks the broker about suspended topics whose time has come.
func (b *broker) probeTopics(ctx context.Context) {
	b.mu.Lock()
	due := b.topics.due(time.Now())
	b.mu.Unlock()
	if len(due) == 0 {
		return
	}
	probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
	faults, err := b.sink.Topics(probeCtx, due)
	cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, topic := range due {
		if err == nil && faults[topic] == nil {
			b.resume(topic)
		} else if t := b.topics[topic]; t != nil {
			t.looks++
			t.until = time.Now().Add(topicPauses.Delay(t.looks, 0.5))
		}
	}
}
