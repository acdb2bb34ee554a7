// Package reconcile compares what the tables say was sent with what the topics hold, by message id.
//
// Guarantee: it changes nothing, and it works with and without a running relay. Its memory is bounded by the number of rows in the window, about 50 bytes each, and not by their size.
// Messages that are published while it runs are no difference: the rows are read before the topics. Goroutines: only the caller
// of Schedule.Run.
package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Tables is what a run asks the database. *store.Store and *query.Reader together implement it.
type Tables interface {
	// Now is the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// Rows hands over the rows of a table that were made in [from, to), as the messages that the relay makes of them. Of a row
	// that cannot be made a message there is an error and the identity alone.
	Rows(ctx context.Context, table string, from, to time.Time, each func(m *outbox.Message, fault error) error) error
	// HasMessages returns those of the message ids that a row of a mapped table has.
	HasMessages(ctx context.Context, messageIDs []string) (map[string]bool, error)
}

// Request says what is to be compared.
type Request struct {
	From, To    time.Time     // of the creation of rows, by the database's clock
	Tables      []string      // schema.table
	Topics      []string      // none: those that the rows name
	Margin      time.Duration // by which the topics are read beyond both ends of the window
	Limit       int           // of examples of each kind
	IgnoreExtra bool          // do not look for rows of records
	Republish   bool          // return the identities of the missing rows, for a caller that publishes them again
}

// lookup is how many message ids are looked up at a time.
const lookup = 500

type run struct {
	Request
	tables Tables
	reader sink.Reader
	now    time.Time // by the database's clock
	*comparison
	unknown   []unknown
	shortened map[string]bool // topics that no longer hold all of what was to be read
}

// unknown is a record that awaits the look-up of its row.
type unknown struct {
	topic  string
	record sink.Record // without its body
}

// Run compares. The rows come first, so that each of them that is SENT was in its topic before the topic is read.
func Run(ctx context.Context, req Request, tables Tables, reader sink.Reader) (Report, error) {
	r := &run{Request: req, tables: tables, reader: reader, comparison: newComparison(window{req.From, req.To}, req.Limit), shortened: map[string]bool{}}
	var err error
	if r.now, err = tables.Now(ctx); err != nil {
		return Report{}, fmt.Errorf("ask the database for its time: %w", err)
	}
	if err := r.eachRow(ctx, r.row); err != nil {
		return Report{}, err
	}
	topics := r.named()
	for _, topic := range topics {
		if err := r.read(ctx, topic, req.From.Add(-req.Margin), req.To.Add(req.Margin)); err != nil {
			return Report{}, err
		}
	}
	// What was sent later than the margin: after an outage, or a delayed message.
	for topic := range r.countMissing() {
		if err := r.read(ctx, topic, req.To.Add(req.Margin), time.Time{}); err != nil {
			return Report{}, err
		}
	}
	if len(r.countMissing()) > 0 {
		if err := r.nameMissing(ctx); err != nil {
			return Report{}, err
		}
	}
	return r.result(), nil
}

// eachRow hands over the rows of the window whose topic is asked for.
func (r *run) eachRow(ctx context.Context, each func(m *outbox.Message, due bool, fault error) error) error {
	for _, table := range r.Request.Tables {
		err := r.tables.Rows(ctx, table, r.From, r.To, func(m *outbox.Message, fault error) error {
			if fault == nil && len(r.Request.Topics) > 0 && !slices.Contains(r.Request.Topics, m.Topic) {
				return nil
			}
			return each(m, !m.DueAt.After(r.now), fault)
		})
		if err != nil {
			return fmt.Errorf("read the rows of %s: %w", table, err)
		}
	}
	return nil
}

// named are the topics to read.
func (r *run) named() []string {
	topics := slices.Clone(r.Request.Topics)
	if len(topics) == 0 {
		for _, g := range r.counts {
			if g.Topic != "" {
				topics = append(topics, g.Topic)
			}
		}
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	for _, topic := range topics {
		r.topic(topic)
	}
	return topics
}

// read counts the records of a span of time, and looks up those that belong to none of the rows.
func (r *run) read(ctx context.Context, topic string, from, to time.Time) error {
	extent, err := r.reader.Read(ctx, topic, from, to, func(record sink.Record) error {
		if !r.record(topic, record) || r.IgnoreExtra {
			return nil
		}
		record.Body = nil
		r.unknown = append(r.unknown, unknown{topic, record})
		if len(r.unknown) < lookup {
			return nil
		}
		return r.lookUp(ctx)
	})
	if err != nil {
		return err
	}
	switch {
	case r.shortened[topic]: // noted already
	case extent.Compacted:
		r.shortened[topic] = true
		r.report.Notes = append(r.report.Notes, fmt.Sprintf("topic %s is compacted (cleanup.policy): of the records of one key it is sure to keep the "+
			"last alone, so rows that are called missing may have been there, and are not published again", topic))
	case extent.Shortened:
		r.shortened[topic] = true
		r.report.Notes = append(r.report.Notes, fmt.Sprintf("topic %s no longer holds all that was stored since %s: rows that are "+
			"called missing may have been in what its retention removed, and are not published again", topic, from.UTC().Format(time.RFC3339)))
	}
	return r.lookUp(ctx)
}

func (r *run) lookUp(ctx context.Context) error {
	if len(r.unknown) == 0 {
		return nil
	}
	ids := make([]string, len(r.unknown))
	for i, u := range r.unknown {
		ids[i] = u.record.MessageID
	}
	slices.Sort(ids)
	known, err := r.tables.HasMessages(ctx, slices.Compact(ids))
	if err != nil {
		return fmt.Errorf("look up the rows of records: %w", err)
	}
	for _, u := range r.unknown {
		if !known[u.record.MessageID] {
			r.extra(u.topic, u.record)
		}
	}
	r.unknown = r.unknown[:0]
	return nil
}

// nameMissing reads the rows again for the identities of those that are missing: they were not kept.
func (r *run) nameMissing(ctx context.Context) error {
	return r.eachRow(ctx, func(m *outbox.Message, due bool, fault error) error {
		if fault != nil || !due || m.Status != outbox.Sent || !r.missing(m.Topic, m.MessageID) {
			return nil
		}
		r.report.Missing = r.example(r.report.Missing, Message{Table: m.Table, ID: m.ID, MessageID: m.MessageID, Topic: m.Topic})
		if r.Republish && !r.shortened[m.Topic] {
			r.report.ToRepublish = append(r.report.ToRepublish, m.Identity)
		}
		return nil
	})
}
