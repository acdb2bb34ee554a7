package operator

import (
	"cmp"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// maxTopics bounds the topics that status lists.
const maxTopics = 50

// byTopic counts the broker's answers to each topic's messages.
func byTopic(f *dto.MetricFamily) map[string]answers {
	all := map[string]answers{}
	for _, m := range f.GetMetric() {
		topic, outcome := "", ""
		for _, l := range m.GetLabel() {
			switch l.GetName() {
			case "topic":
				topic = l.GetValue()
			case "outcome":
				outcome = l.GetValue()
			}
		}
		a, n := all[topic], uint64(m.GetCounter().GetValue())
		if outcome == "sent" {
			a.sent += n
		} else {
			a.other += n
		}
		all[topic] = a
	}
	return all
}

// topics are the busiest ones, those with errors first.
func topics(current, before reading) []TopicStatus {
	list := []TopicStatus{}
	span := current.at.Sub(before.at).Seconds()
	for topic, now := range current.topics {
		then, t := before.topics[topic], TopicStatus{Topic: topic, Published: now.sent, Errors: now.other}
		if span > 0 {
			t.Rate, t.ErrorRate = float64(now.sent-then.sent)/span, float64(now.other-then.other)/span
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b TopicStatus) int {
		return cmp.Or(cmp.Compare(b.ErrorRate, a.ErrorRate), cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Published, a.Published), cmp.Compare(a.Topic, b.Topic))
	})
	return list[:min(len(list), maxTopics)]
}
