package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// maxTopics bounds what is remembered per topic; beyond, topics are treated alike.
const maxTopics = 1000

// topicPauses are between checks of a suspended topic: its rows are sent soon after the topic was created.
var topicPauses = outbox.Backoff{Base: time.Second, Max: 5 * time.Second}

// topics are those whose rows are left alone until the topic exists or may be written. It is a pure type: the caller passes the time.
type topics map[string]*suspendedTopic

type suspendedTopic struct {
	until  time.Time
	looks  int
	reason string
}

// suspend adds a topic. It reports whether the topic is new.
func (s topics) suspend(topic, reason string, now time.Time) (fresh bool) {
	t := s[topic]
	if fresh = t == nil; fresh {
		if len(s) >= maxTopics {
			return false
		}
		t = &suspendedTopic{until: now.Add(topicPauses.Delay(0, 0.5))}
		s[topic] = t
	}
	t.reason = reason
	return fresh
}

func (s topics) has(topic string) bool { return len(s) > 0 && s[topic] != nil }

// split takes the rows of suspended topics out.
func (s topics) split(rows []outbox.Candidate) (rest, suspended []outbox.Candidate) {
	if len(s) == 0 {
		return rows, nil
	}
	for _, c := range rows {
		if s.has(c.Topic) {
			suspended = append(suspended, c)
		} else {
			rest = append(rest, c)
		}
	}
	return rest, suspended
}

// due returns the topics whose next check is due, in the order of their names.
func (s topics) due(now time.Time) (list []string) {
	for topic, t := range s {
		if !now.Before(t.until) {
			list = append(list, topic)
		}
	}
	slices.Sort(list)
	return list
}

// SuspendedTopic is a topic that is left alone, and why.
type SuspendedTopic struct{ Topic, Reason string }

// list returns the topics for status, in the order of their names.
func (s topics) list() (list []SuspendedTopic) {
	for topic, t := range s {
		list = append(list, SuspendedTopic{topic, t.reason})
	}
	slices.SortFunc(list, func(a, b SuspendedTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return list
}
