package checkpoint

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// gaps is the part of a Store that records which parts of the log were not read.
type gaps struct {
	files *engine
	last  uint64 // number of the newest gap
	open  int    // gaps that are not acknowledged
}

// AddGap records a gap durably and returns its number, counted from 1. It sets ID and Acknowledged, and At if it is zero. A gap
// of a first start counts as acknowledged. AddGap does not move the checkpoint.
func (g *gaps) AddGap(gap outbox.Gap) (uint64, error) {
	gap.Acknowledged = gap.Cause == outbox.GapFirstStart
	if gap.At.IsZero() {
		gap.At = time.Now()
	}
	gap.At = gap.At.UTC()
	err := g.files.update(func(b *batch) error {
		gap.ID = g.last + 1
		return b.putJSON(numberedKey(nil, kindGap, gap.ID), gap)
	}, func() { g.count(gap) })
	if err != nil {
		return 0, err
	}
	g.files.metrics.gaps.WithLabelValues(string(gap.Cause)).Inc()
	return gap.ID, nil
}

// Gaps returns every recorded gap, oldest first, acknowledged ones too.
func (g *gaps) Gaps() ([]outbox.Gap, error) { return list(g.files, kindGap, decodeAs[outbox.Gap]) }

// AckGap notes that an operator has seen the gap. ErrUnknownGap when there is none of that number; again is no error.
func (g *gaps) AckGap(id uint64) error {
	return g.files.update(func(b *batch) error {
		key := numberedKey(nil, kindGap, id)
		gap, err := g.read(key)
		if errors.Is(err, pebble.ErrNotFound) {
			return fmt.Errorf("gap %d: %w", id, ErrUnknownGap)
		}
		if err != nil || gap.Acknowledged {
			return classify(g.files.dir, err)
		}
		gap.Acknowledged = true
		return b.putJSON(key, gap)
	}, func() { g.open-- })
}

func (g *gaps) read(key []byte) (gap outbox.Gap, err error) {
	value, closer, err := g.files.db.Get(key)
	if err != nil {
		return gap, err
	}
	gap, err = decodeAs[outbox.Gap](key, value)
	return gap, errors.Join(err, closer.Close())
}

// load takes a record of this part over at the start.
func (g *gaps) load(key, value []byte) error {
	gap, err := decodeAs[outbox.Gap](key, value)
	g.count(gap)
	return err
}

func (g *gaps) count(gap outbox.Gap) {
	g.last = max(g.last, gap.ID)
	if !gap.Acknowledged {
		g.open++
	}
}
