package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// AddGap records a gap durably and returns its number, counted from 1. It sets ID and Acknowledged, and At if it is zero. A gap
// of a first start counts as acknowledged. AddGap does not move the checkpoint.
func (s *Store) AddGap(gap outbox.Gap) (uint64, error) {
	if err := s.startWriting(); err != nil {
		return 0, err
	}
	defer s.endWriting()
	gap.ID, gap.Acknowledged = s.lastGap+1, gap.Cause == outbox.GapFirstStart
	if gap.At.IsZero() {
		gap.At = time.Now()
	}
	gap.At = gap.At.UTC()
	if err := s.putJSON(numberedKey(nil, kindGap, gap.ID), gap); err != nil {
		return 0, err
	}
	if err := s.sync(); err != nil {
		return 0, err
	}
	s.metrics.gaps.WithLabelValues(string(gap.Cause)).Inc()
	s.state.Lock()
	defer s.state.Unlock()
	s.lastGap = gap.ID
	if !gap.Acknowledged {
		s.openGaps++
	}
	return gap.ID, nil
}

// Gaps returns every recorded gap, oldest first, acknowledged ones too.
func (s *Store) Gaps() ([]outbox.Gap, error) {
	var out []outbox.Gap
	err := s.scan(kindGap, kindGap, func(key, value []byte) error {
		var gap outbox.Gap
		err := decodeJSON(key, value, &gap)
		out = append(out, gap)
		return err
	})
	return out, err
}

// AckGap notes that an operator has seen the gap. ErrUnknownGap when there is none of that number; again is no error.
func (s *Store) AckGap(id uint64) error {
	if err := s.startWriting(); err != nil {
		return err
	}
	defer s.endWriting()
	key := numberedKey(nil, kindGap, id)
	gap, err := s.gap(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return fmt.Errorf("gap %d: %w", id, ErrUnknownGap)
	}
	if err != nil || gap.Acknowledged {
		return classify(s.dir, err)
	}
	gap.Acknowledged = true
	if err := s.putJSON(key, gap); err != nil {
		return err
	}
	if err := s.sync(); err != nil {
		return err
	}
	s.state.Lock()
	defer s.state.Unlock()
	s.openGaps--
	return nil
}

func (s *Store) gap(key []byte) (gap outbox.Gap, err error) {
	value, closer, err := s.db.Get(key)
	if err != nil {
		return gap, err
	}
	err = decodeJSON(key, value, &gap)
	return gap, errors.Join(err, closer.Close())
}

// SaveSchema stores what the reader needs to name a table's columns, in place of what it stored before under that name. An
// empty blob removes it.
func (s *Store) SaveSchema(table string, blob []byte) error {
	if table == "" {
		return errors.New("checkpoint: a schema version needs the name of its table")
	}
	if err := s.startWriting(); err != nil {
		return err
	}
	defer s.endWriting()
	s.key = append(append(s.key[:0], kindSchema), table...)
	s.val = append(append(s.val[:0], blankHeader[:]...), blob...)
	var err error
	if len(blob) == 0 {
		err = s.batch.Delete(s.key, nil)
	} else {
		err = s.put()
	}
	if err != nil {
		return err
	}
	return s.sync()
}

// Schemas returns what SaveSchema stored, by table. The caller owns the blobs.
func (s *Store) Schemas() (map[string][]byte, error) {
	out := map[string][]byte{}
	err := s.scan(kindSchema, kindSchema, func(key, value []byte) error {
		blob, err := unseal(key, value)
		out[string(key[1:])] = append([]byte(nil), blob...)
		return err
	})
	return out, err
}

// putJSON adds one of the records that are written rarely.
func (s *Store) putJSON(key []byte, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("checkpoint: a %q record: %w", kindOf(key), err)
	}
	s.key = append(s.key[:0], key...)
	s.val = append(append(s.val[:0], blankHeader[:]...), payload...)
	return s.put()
}
