package reconcile

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// maxRows is the most rows of a window. Each takes about 50 bytes (TestMemoryOfARow).
const maxRows = 10_000_000

// expectation is what the comparison remembers of a row. It is 16 bytes, however long the row is.
type expectation struct {
	body   uint64
	group  uint32
	copies uint16 // of it that were read
	rows   uint8  // that have this message id and topic; above one they cannot be told apart
	sent   uint8  // of them are SENT, and must be in the topic
}

// differs replaces the body when a copy with another one was read. No hash is this: see hash.
const differs = 2

// message names what rows and records have in common.
type message struct{ topic, id string }

// comparison holds the rows of a window and counts what the topics hold of them. Rows and bodies are known by a hash of 64
// bits with a seed of its own: that two of ten million messages have the same is a matter of one in 300,000, and not so again
// in the next run.
type comparison struct {
	window window
	limit  int // of examples
	seed   maphash.Seed
	rows   map[uint64]expectation
	groups map[message]uint32 // table and topic
	counts []Group
	topics map[string]*Topic
	report Report
	shared int64 // rows that have message id and topic of another
}

type window struct{ from, to time.Time }

func (w window) has(at time.Time) bool { return !at.Before(w.from) && at.Before(w.to) }

func newComparison(w window, limit int) *comparison {
	return &comparison{
		window: w, limit: limit, seed: maphash.MakeSeed(), rows: map[uint64]expectation{}, groups: map[message]uint32{},
		topics: map[string]*Topic{},
	}
}

func (c *comparison) key(topic, messageID string) uint64 {
	return maphash.Comparable(c.seed, message{topic, messageID})
}

// hash distinguishes NULL from an empty body.
func (c *comparison) hash(body []byte) uint64 {
	if body == nil {
		return 0
	}
	return maphash.Bytes(c.seed, body) | 1 // odd
}

func (c *comparison) group(table, topic string) uint32 {
	name := message{table, topic}
	i, known := c.groups[name]
	if !known {
		i = uint32(len(c.counts))
		c.groups[name] = i
		c.counts = append(c.counts, Group{Table: table, Topic: topic})
	}
	return i
}

// row takes a row of the window in; due is that the message is one that may have reached its consumers by now. A row with a
// fault cannot be made a message.
func (c *comparison) row(m *outbox.Message, due bool, fault error) error {
	if fault != nil {
		g := &c.counts[c.group(m.Table, "")]
		g.Rows++
		g.Faulty++
		return nil
	}
	i := c.group(m.Table, m.Topic)
	g := &c.counts[i]
	g.Rows++
	e := expectation{body: c.hash(m.Body), group: i, rows: 1}
	switch {
	case m.Status == outbox.Sent && due:
		g.Sent++
		e.sent = 1
	case m.Status == outbox.Failed:
		g.Failed++
	case m.Status == outbox.Held:
		g.Held++
	default:
		g.NotSent++
	}
	key := c.key(m.Topic, m.MessageID)
	if other, twice := c.rows[key]; twice {
		c.shared++
		if other.rows < 1<<8-1 {
			other.rows, other.sent = other.rows+1, other.sent+e.sent
		}
		e = other
	}
	c.rows[key] = e
	if len(c.rows) > maxRows {
		return fmt.Errorf("the window holds more than %d rows, too many for one run: choose a shorter one, or one table with --table", maxRows)
	}
	return nil
}

// record counts a record. It reports whether the record is of the window and of none of its rows, which the tables must be
// asked about.
func (c *comparison) record(topic string, r sink.Record) (unknown bool) {
	t := c.topic(topic)
	t.Records++
	if r.MessageID == "" {
		t.WithoutID++
		return false
	}
	key := c.key(topic, r.MessageID)
	e, known := c.rows[key]
	if !known {
		return c.window.has(r.At)
	}
	g := &c.counts[e.group]
	if e.copies < 1<<16-1 {
		e.copies++
	}
	if e.copies > uint16(e.rows) {
		if g.Copies++; e.copies == uint16(e.rows)+1 {
			g.Repeated++
		}
		c.repeated(topic, r, e)
	}
	if e.rows == 1 && e.body != differs && e.body != c.hash(r.Body) {
		e.body = differs
		g.Different++
		c.report.Different = c.example(c.report.Different, Message{Table: g.Table, MessageID: r.MessageID, Topic: topic, Place: r.Position, At: at(r)})
	}
	c.rows[key] = e
	return false
}

func (c *comparison) topic(name string) *Topic {
	t := c.topics[name]
	if t == nil {
		t = &Topic{Topic: name}
		c.topics[name] = t
	}
	return t
}

func at(r sink.Record) *time.Time {
	utc := r.At.UTC()
	return &utc
}

func (c *comparison) example(list []Message, m Message) []Message {
	if len(list) < c.limit {
		list = append(list, m)
	}
	return list
}

// repeated keeps an example of a message that came again, or renews the one that there is.
func (c *comparison) repeated(topic string, r sink.Record, e expectation) {
	m := Message{
		Table: c.counts[e.group].Table, MessageID: r.MessageID, Topic: topic, Place: r.Position, At: at(r), Copies: int64(e.copies),
	}
	for i := range c.report.Repeated {
		if one := &c.report.Repeated[i]; one.MessageID == m.MessageID && one.Topic == m.Topic {
			*one = m
			return
		}
	}
	c.report.Repeated = c.example(c.report.Repeated, m)
}

// extra counts a record that no table has a row of.
func (c *comparison) extra(topic string, r sink.Record) {
	c.topic(topic).Extra++
	c.report.Extra = c.example(c.report.Extra, Message{MessageID: r.MessageID, Topic: topic, Place: r.Position, At: at(r)})
}

// missing reports whether a row that was SENT is not in its topic.
func (c *comparison) missing(topic, messageID string) bool {
	e, known := c.rows[c.key(topic, messageID)]
	return known && e.missing() > 0
}

func (e expectation) missing() int64 {
	return int64(max(0, int(e.sent)-int(e.copies)))
}

// countMissing is to be called when all topics are read. It returns how many are missing, by topic.
func (c *comparison) countMissing() map[string]int64 {
	for i := range c.counts {
		c.counts[i].Missing = 0
	}
	for _, e := range c.rows {
		c.counts[e.group].Missing += e.missing()
	}
	byTopic := map[string]int64{}
	for _, g := range c.counts {
		if g.Missing > 0 {
			byTopic[g.Topic] += g.Missing
		}
	}
	return byTopic
}

// result is the report, in an order that does not change from run to run.
func (c *comparison) result() Report {
	r := c.report
	r.From, r.To = c.window.from.UTC(), c.window.to.UTC()
	r.Tables, r.Topics = append([]Group{}, c.counts...), []Topic{}
	slices.SortFunc(r.Tables, func(a, b Group) int { return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Topic, b.Topic)) })
	for _, t := range c.topics {
		r.Topics = append(r.Topics, *t)
	}
	slices.SortFunc(r.Topics, func(a, b Topic) int { return cmp.Compare(a.Topic, b.Topic) })
	if c.shared > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d rows have the message id and the topic of another row: copies and bodies of these cannot be told apart", c.shared))
	}
	for _, list := range []*[]Message{&r.Missing, &r.Extra, &r.Repeated, &r.Different} {
		*list = append([]Message{}, *list...)
	}
	r.Notes = append([]string{}, r.Notes...)
	r.Equal = r.isEqual()
	return r
}
