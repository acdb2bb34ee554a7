package dispatch

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// maxTopics bounds what is remembered per topic; beyond, topics are treated alike.
const maxTopics = 1000

// topicPauses are between checks of a suspended topic: its rows are sent soon after the topic was created.
var topicPauses = outbox.Backoff{Base: time.Second, Max: 5 * time.Second}

// suspendedTopic is a topic whose rows are left alone until it exists or may be written.
type suspendedTopic struct {
	until  time.Time
	looks  int
	reason string
}

// suspend leaves a topic alone for a while. Callers hold mu.
func (d *Dispatch) suspend(topic, reason string, now time.Time) {
	t := d.suspended[topic]
	if t == nil {
		if len(d.suspended) >= maxTopics {
			return
		}
		t = &suspendedTopic{until: now.Add(topicPauses.Delay(0, 0.5))}
		d.suspended[topic] = t
		d.log.Warn("topic suspended: its rows stay PENDING, cost no attempt, and flow when it works", zap.String("topic", topic), zap.String("reason", reason))
	}
	t.reason = reason
	d.kick()
}

func (d *Dispatch) topicSuspended(topic string) bool {
	return len(d.suspended) > 0 && d.suspended[topic] != nil
}

// withoutSuspended takes the rows of suspended topics out. Callers hold mu.
func (d *Dispatch) withoutSuspended(rows []outbox.Candidate) (rest, suspended []outbox.Candidate) {
	if len(d.suspended) == 0 {
		return rows, nil
	}
	for _, c := range rows {
		if d.topicSuspended(c.Topic) {
			suspended = append(suspended, c)
		} else {
			rest = append(rest, c)
		}
	}
	return rest, suspended
}

// resume lets a topic flow again and asks for a sweep of what was left to it. Callers hold mu.
func (d *Dispatch) resume(topic string) {
	if d.suspended[topic] == nil {
		return
	}
	delete(d.suspended, topic)
	d.tracker.Disturb()
	d.log.Info("topic works again", zap.String("topic", topic))
	d.sweeps.Trigger()
}

// TryTopics looks at suspended topics at once.
func (d *Dispatch) TryTopics() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.suspended {
		t.until = time.Time{}
	}
	d.kick()
}

// probeTopics asks the broker about suspended topics whose time has come.
func (d *Dispatch) probeTopics(ctx context.Context) {
	now := time.Now()
	var due []string
	d.mu.Lock()
	for topic, t := range d.suspended {
		if !now.Before(t.until) {
			due = append(due, topic)
		}
	}
	d.mu.Unlock()
	if len(due) == 0 {
		return
	}
	slices.Sort(due)
	probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
	faults, err := d.sink.Topics(probeCtx, due)
	cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, topic := range due {
		if err == nil && faults[topic] == nil {
			d.resume(topic)
		} else if t := d.suspended[topic]; t != nil {
			t.looks++
			t.until = time.Now().Add(topicPauses.Delay(t.looks, 0.5))
		}
	}
}
