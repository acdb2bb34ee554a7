package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// How much of a topic is read for one message.
const (
	readAround  = time.Minute      // before and after the time at which it was sent, for the clocks of three machines
	readUnknown = 10 * time.Minute // after it was made, where nothing says when it was sent
	readPeriod  = 5 * time.Second
	readRecords = 200_000
	readCopies  = 10
)

// errEnough ends a reading.
var errEnough = errors.New("enough was read")

// broker reads the message back from its topic, around the time at which it must have been sent.
func (t *tracer) broker(ctx context.Context) {
	r := t.row
	switch {
	case r.Status == outbox.Pending && r.Attempts == 0 && t.journal == nil && (t.flow == nil || !t.flow.Owned):
		return // it was never sent
	case t.Broker == nil:
		t.unknown("where the message is in its topic: this sink cannot be read back")
		return
	case r.Topic == "":
		t.unknown("where the message is: the row names no topic")
		return
	}
	from, to, why := t.sent()
	if from.IsZero() {
		t.unknown("where the message is in topic %s: nothing says when it was sent", r.Topic)
		return
	}
	reader, done, err := t.Broker()
	if err != nil {
		t.unknown("where the message is in topic %s: %v", r.Topic, err)
		return
	}
	defer done()
	limited, cancel := context.WithTimeout(ctx, readPeriod)
	defer cancel()
	read, copies := 0, 0
	extent, err := reader.Read(limited, r.Topic, from, to, func(record sink.Record) error {
		if read++; record.MessageID == r.MessageID {
			copies++
			t.event(record.At, "published", fromBroker, "topic %s, %s, %d bytes", r.Topic, record.Position, len(record.Body))
		}
		if read >= readRecords || copies >= readCopies {
			return errEnough
		}
		return nil
	})
	part := fmt.Sprintf("topic %s was read from %s to %s (%s), %d records", r.Topic, clock(from), clock(to), why, read)
	switch {
	case copies > 1:
		t.unknown("whether there are more copies than these %d: %s", copies, part)
	case copies == 1:
	case errors.Is(err, errEnough), limited.Err() != nil && ctx.Err() == nil:
		t.unknown("where the message is: %s, and not to the end of that part; `canal-outbox reconcile` reads on", part)
	case err != nil:
		t.unknown("where the message is in topic %s: %v", r.Topic, err)
	case extent.Shortened:
		t.unknown("where the message is: %s, without finding it, and the topic no longer holds all of them", part)
	default:
		t.unknown("where the message is: %s, without finding it; `canal-outbox reconcile` compares the whole table with the topic", part)
	}
}

// sent is the span of time in which the message was sent, and what says so.
func (t *tracer) sent() (from, to time.Time, why string) {
	r := t.row
	for _, one := range []struct {
		at  time.Time
		why string
	}{{r.SentAt, "around the time at which it was written as SENT"}, {r.LastExec, "around its last attempt"}} {
		if !one.at.IsZero() {
			return one.at.Add(-readAround), one.at.Add(readAround), one.why
		}
	}
	switch {
	case r.CreatedAt.IsZero():
		return from, to, ""
	case r.Status == outbox.Sent && !r.UpdatedAt.IsZero():
		return r.UpdatedAt.Add(-readAround), r.UpdatedAt.Add(readAround), "around its last change"
	case r.Status == outbox.Held && !r.UpdatedAt.IsZero():
		return r.CreatedAt.Add(-readAround), r.UpdatedAt.Add(readAround), "from when it was made to its last change"
	}
	return r.CreatedAt.Add(-readAround), r.CreatedAt.Add(readUnknown), "after it was made"
}
