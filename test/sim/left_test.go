package sim

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
)

// This file is what Kafka 4.3.1 does when the leader of a partition is away while a transaction ends: the coordinator takes the partition for deleted and
// forgets to end the transaction there. The end of the id's next transaction in the partition is the end of this one too.

// left is a transaction that has ended for the coordinator and is open in partitions. A topic has one partition here.
type left struct {
	committed bool
	topics    map[string]bool
	entry     *kgo.Record
}

func (id *transactionalID) leftIn(topic string) bool {
	return slices.ContainsFunc(id.left, func(l *left) bool { return l.topics[topic] })
}

func (t *txn) topics() map[string]bool {
	topics := map[string]bool{}
	if t.entry != nil {
		topics[stateTopic] = true
	}
	for _, f := range t.flights {
		topics[f.message.Topic] = true
	}
	return topics
}

// forgets reports whether the coordinator forgets to end a transaction. The brokers are started again then, so all connections break. Callers hold mu.
func (w *world) forgets(t *txn, commit bool) bool {
	if w.at() >= w.plan.healed || !w.dice("forgets", uint64(t.id)).chance(0.02) {
		return false
	}
	w.note(0, "left open", "", "", t.id)
	w.cluster.breaks++
	id := &w.cluster.ids[t.id]
	id.left = append(id.left, &left{committed: commit, topics: t.topics(), entry: t.entry})
	return true
}

// ends is the end of a transaction in its partitions. Callers hold mu.
func (w *world) ends(id *transactionalID, t *txn, commit bool) {
	for topic := range t.topics() {
		w.endsIn(id, topic, commit)
	}
}

// endsIn writes an end into a partition. Callers hold mu.
func (w *world) endsIn(id *transactionalID, topic string, commit bool) {
	for _, l := range id.left {
		switch {
		case !l.topics[topic]:
			continue
		case l.committed && !commit:
			w.violation("exactly once", "messages of topic %s are aborted that were committed", topic)
		case !l.committed && commit:
			w.violation("exactly once", "messages of topic %s are visible that were aborted", topic)
		case commit && topic == stateTopic:
			w.reveal(l.entry)
		}
		delete(l.topics, topic)
	}
	id.left = slices.DeleteFunc(id.left, func(l *left) bool { return len(l.topics) == 0 })
}

// reveal makes an entry visible, behind those of lower and of equal numbers. Callers hold mu.
func (w *world) reveal(entry *kgo.Record) {
	at, _ := slices.BinarySearchFunc(w.cluster.entries, numberOf(entry)+1, func(r *kgo.Record, number uint64) int { return cmp.Compare(numberOf(r), number) })
	w.cluster.entries = slices.Insert(w.cluster.entries, at, entry)
}

func numberOf(r *kgo.Record) uint64 {
	e, _ := ledger.Decode(r.Value)
	return e.Number
}

// mend is what an epoch begins with: it ends what is left where the process remembers it. A process that begins has only the state topic. What its
// predecessor has left elsewhere is a limit that docs/operations/exactly-once.md names: it is not followed up here. false: the brokers are away again, after
// the coordinator has said its word, which it does not say again. That the process dies then is another such limit. Callers hold mu.
func (w *world) mend(id *transactionalID, ends kafka.Ends, life int, d *dice) bool {
	said := id.said
	if said != kafka.Unsure && id.to != life {
		id.last, said = said, kafka.Unsure
	}
	id.said = kafka.Unsure
	for at, fate := range ends {
		if fate == kafka.Unsure && id.last != kafka.Unsure {
			ends[at] = id.last
		}
	}
	last := id.last
	id.last = kafka.Unsure
	if len(ends) <= 1 && len(id.left) > 0 && w.at() < w.plan.healed && d.chance(0.3) { // later it would be an outage
		id.said, id.to = max(last, said), life // it may break off several times
		return false
	}
	for at, fate := range ends {
		w.endsIn(id, at.Topic, fate == kafka.Committed)
	}
	if len(ends) <= 1 {
		for _, l := range id.left {
			for topic := range l.topics {
				if topic != stateTopic {
					delete(l.topics, topic)
				}
			}
		}
		id.left = slices.DeleteFunc(id.left, func(l *left) bool { return len(l.topics) == 0 })
	}
	w.endsIn(id, stateTopic, false) // the first transaction of an epoch is aborted
	return true
}
