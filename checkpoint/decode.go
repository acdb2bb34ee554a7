package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// reader takes a payload apart; the first thing that does not fit makes all later reads empty.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) time() time.Time {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return time.Time{}
	}
	r.rest = r.rest[n:]
	return time.UnixMilli(v).UTC()
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}

// difference is the text that begins as before does.
func (r *reader) difference(before string) string {
	n := r.uvarint()
	rest := r.text()
	if n > uint64(len(before)) {
		r.bad, r.rest = true, nil
		return ""
	}
	if n == uint64(len(before)) && rest == "" {
		return before
	}
	return before[:n] + rest
}

func (r *reader) position() outbox.Position {
	return outbox.Position{File: r.text(), Offset: r.uvarint(), GTIDs: r.text()}
}

func (r *reader) source() server.ID {
	id := server.ID{Flavor: outbox.Flavor(r.text()), UUID: r.text()}
	number := r.uvarint()
	if number > math.MaxUint32 {
		r.bad = true
	}
	id.ServerID = uint32(number)
	return id
}

// end is nil when everything fitted and nothing is left over.
func (r *reader) end(kind byte) error {
	if r.bad || len(r.rest) > 0 {
		return fmt.Errorf("%w: form of a %q record", errRecord, string(kind))
	}
	return nil
}

// decodeSent reads what appendSent wrote, into an empty list.
func decodeSent(key, value []byte, sent []outbox.Completion) (_ []outbox.Completion, at time.Time, err error) {
	payload, err := unseal(key, value)
	if err != nil {
		return sent, at, err
	}
	r := reader{rest: payload}
	at = r.time()
	var c outbox.Completion
	for len(r.rest) > 0 {
		c.Table, c.ID = r.difference(c.Table), r.difference(c.ID)
		c.MessageID, c.BrokerID = r.difference(c.MessageID), r.difference(c.BrokerID)
		c.Action = outbox.ActionMarkSent
		sent = append(sent, c)
	}
	r.bad = r.bad || len(sent) == 0
	return sent, at, r.end(kindSent)
}

func decodeCheckpoint(key, value []byte) (p outbox.Position, at time.Time, err error) {
	payload, err := unseal(key, value)
	if err != nil {
		return p, at, err
	}
	r := reader{rest: payload}
	at = r.time()
	p = r.position()
	return p, at, r.end(kindCheckpoint)
}

func decodeEntry(key, value []byte) (e Entry, err error) {
	payload, err := unseal(key, value)
	if err != nil {
		return e, err
	}
	if e.Number, err = numberOf(key); err != nil {
		return e, err
	}
	r := reader{rest: payload}
	e.At, e.Position, e.Source, e.Reason = r.time(), r.position(), r.source(), r.text()
	return e, r.end(kindHistory)
}

// decodeJSON reads one of the records that are written rarely: gaps, origin, source.
func decodeJSON(key, value []byte, into any) error {
	payload, err := unseal(key, value)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(payload, into); err != nil {
		return fmt.Errorf("%w: a %q record: %v", errRecord, kindOf(key), err)
	}
	return nil
}

// decodeAs is decodeJSON into a new value.
func decodeAs[T any](key, value []byte) (out T, err error) {
	err = decodeJSON(key, value, &out)
	return out, err
}
