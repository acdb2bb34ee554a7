package checkpoint

import (
	"encoding/binary"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// The store is table.Waits: what a table has no columns for. They are read from memory and written through.

// Wait implements table.Waits.
func (s *Store) Wait(id outbox.Identity) (table.Wait, bool) { return s.waits.Wait(id) }

// Waiting implements table.Waits.
func (s *Store) Waiting(name string, now time.Time) (rows int, longest time.Duration) {
	return s.waits.Waiting(name, now)
}

// Of implements table.Waits.
func (s *Store) Of(name string) []outbox.Identity { return s.waits.Of(name) }

// Keep implements table.Waits with one synced batch; one that only drops is not synced, because a wait too many is dropped again.
func (s *Store) Keep(put []table.Waiting, drop []outbox.Identity) error {
	if err := s.startWriting(); err != nil {
		return err
	}
	defer s.endWriting()
	for _, w := range put {
		s.key = appendWaitKey(s.key[:0], kindWait, w.Identity)
		s.val = appendWaitValue(s.val[:0], w.Wait)
		if err := s.put(); err != nil {
			return err
		}
	}
	for _, id := range s.waits.Change(put, drop, time.Now()) {
		s.key = appendWaitKey(s.key[:0], kindWait, id)
		if err := s.batch.Delete(s.key, nil); err != nil {
			return err
		}
	}
	if len(put) > 0 {
		return s.sync()
	}
	return s.commitUnsynced()
}

// Redeliveries returns how often SENT rows went out again, and when each may do so next, in no particular order.
func (s *Store) Redeliveries() (all []table.Waiting, err error) {
	err = s.scan(kindRedelivery, kindRedelivery, func(key, value []byte) error {
		w, err := decodeWait(key, value)
		all = append(all, w)
		return err
	})
	return all, err
}

// KeepRedeliveries puts and drops such records in one synced batch; one that only drops is not synced.
func (s *Store) KeepRedeliveries(put []table.Waiting, drop []outbox.Identity) error {
	if err := s.startWriting(); err != nil {
		return err
	}
	defer s.endWriting()
	for _, w := range put {
		s.key = appendWaitKey(s.key[:0], kindRedelivery, w.Identity)
		s.val = appendWaitValue(s.val[:0], w.Wait)
		if err := s.put(); err != nil {
			return err
		}
	}
	for _, id := range drop {
		s.key = appendWaitKey(s.key[:0], kindRedelivery, id)
		if err := s.batch.Delete(s.key, nil); err != nil {
			return err
		}
	}
	if len(put) > 0 {
		return s.sync()
	}
	return s.commitUnsynced()
}

func appendWaitKey(b []byte, kind byte, id outbox.Identity) []byte {
	b = append(b, kind)
	b = appendText(b, id.Table)
	b = appendText(b, id.ID)
	return append(b, id.MessageID...)
}

func appendWaitValue(b []byte, w table.Wait) []byte {
	b = append(b, blankHeader[:]...)
	b = binary.AppendVarint(b, w.Due.UnixMilli())
	return binary.AppendUvarint(b, uint64(max(0, w.Attempts)))
}

func decodeWait(key, value []byte) (w table.Waiting, err error) {
	payload, err := unseal(key, value)
	if err != nil {
		return w, err
	}
	k := reader{rest: key[1:]}
	w.Table, w.ID = k.text(), k.text()
	w.MessageID = string(k.rest)
	v := reader{rest: payload, bad: k.bad}
	w.Due, w.Attempts = v.time(), int(v.uvarint())
	return w, v.end(kindWait)
}
