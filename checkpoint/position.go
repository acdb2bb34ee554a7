package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Checkpoint returns the end of the last transaction below which everything is settled; false before the first one.
func (s *Store) Checkpoint() (outbox.Position, bool) {
	s.state.Lock()
	defer s.state.Unlock()
	return s.progress.checkpoint, s.progress.hasCheckpoint
}

// Source returns whose log the checkpoint is a position of; false before the first SetSource or Reset.
func (s *Store) Source() (server.ID, bool) {
	s.state.Lock()
	defer s.state.Unlock()
	return s.progress.source, s.progress.hasSource
}

// Origin says how the store came to be: whether a missing checkpoint is a first start or the loss of a damaged store.
func (s *Store) Origin() Origin {
	s.state.Lock()
	defer s.state.Unlock()
	return s.origin
}

// SetSource records the server that the identity check accepted: the first one, or the new primary after a failover. The
// change stays in the history. The checkpoint stays as it is; where that would be wrong, use Reset.
func (s *Store) SetSource(id server.ID) error {
	return s.relocate(func(next *progress, now time.Time) error {
		old := next.source
		if next.hasSource && old == id {
			return nil
		}
		changed := next.hasSource && next.hasCheckpoint
		if err := s.putSource(next, id); err != nil || !changed {
			return err
		}
		return s.putEntry(next, now, fmt.Sprintf("source changed from %s to %s", describe(old), describe(id)))
	})
}

// Reset sets the server and the checkpoint, backwards too: by an operator's decision, after a gap or after a failover. Both
// change in one step. Otherwise a restart in between could combine a position of one server with the other server. The old and
// the new position stay in the history with the reason, which must not be empty.
//
// Of the commits that follow only those of the given epoch move the checkpoint. The epoch is of this run: a new Store is at 0.
func (s *Store) Reset(id server.ID, position outbox.Position, epoch uint64, reason string) error {
	if reason == "" || position.IsZero() {
		return errors.New("checkpoint: moving it needs a position and a reason")
	}
	return s.relocate(func(next *progress, now time.Time) error {
		if next.hasCheckpoint {
			if err := s.putEntry(next, now, "before: "+reason); err != nil {
				return err
			}
		}
		if err := s.putSource(next, id); err != nil {
			return err
		}
		next.epoch = epoch
		if err := s.putCheckpoint(next, now, position); err != nil {
			return err
		}
		return s.putEntry(next, now, reason)
	})
}

// History returns the positions that the checkpoint had, newest first: the newest 1000, then one a minute for a day and one
// an hour for 90 days, and every move by hand in that time.
func (s *Store) History() ([]Entry, error) {
	var out []Entry
	err := s.scan(kindHistory, kindHistory, func(key, value []byte) error {
		entry, err := decodeEntry(key, value)
		out = append(out, entry)
		return err
	})
	slices.Reverse(out)
	return out, err
}

// relocate lets change fill the batch and the next place, and stores both; a change that writes nothing is none.
func (s *Store) relocate(change func(next *progress, now time.Time) error) error {
	if err := s.startWriting(); err != nil {
		return err
	}
	defer s.endWriting()
	next := s.progress
	if err := change(&next, time.Now()); err != nil || s.batch.Empty() {
		return err
	}
	if err := s.sync(); err != nil {
		return err
	}
	s.state.Lock()
	defer s.state.Unlock()
	s.progress = next
	return nil
}

// putAdvance is the ordinary way forward: the new checkpoint, and at most once in historyPeriod its history entry. A clock
// that was set back does not stop the history.
func (s *Store) putAdvance(next *progress, now time.Time, position outbox.Position) error {
	if err := s.putCheckpoint(next, now, position); err != nil {
		return err
	}
	if n := len(next.history); n > 0 {
		if since := now.Sub(next.history[n-1].at); since >= 0 && since < historyPeriod {
			return nil
		}
	}
	return s.putEntry(next, now, "")
}

func (s *Store) putSource(next *progress, id server.ID) error {
	next.crossed = next.crossed || next.hasSource && next.source != id
	next.source, next.hasSource = id, true
	return s.putJSON([]byte{kindSource}, id)
}

func (s *Store) putCheckpoint(next *progress, now time.Time, position outbox.Position) error {
	next.checkpoint, next.hasCheckpoint, next.at = position, true, now
	s.key = append(s.key[:0], kindCheckpoint)
	s.val = appendCheckpoint(s.val[:0], now, position)
	return s.put()
}

// putEntry appends where next is to the history, and thins it now and then.
func (s *Store) putEntry(next *progress, now time.Time, reason string) error {
	entry := Entry{Number: 1, At: now, Position: next.checkpoint, Source: next.source, Reason: reason}
	if n := len(next.history); n > 0 {
		entry.Number = next.history[n-1].number + 1
	}
	s.key = numberedKey(s.key[:0], kindHistory, entry.Number)
	s.val = appendEntry(s.val[:0], entry)
	if err := s.put(); err != nil {
		return err
	}
	next.history = append(next.history, historyItem{entry.Number, now, reason != ""})
	if next.appended++; next.appended < thinEvery {
		return nil
	}
	next.appended = 0
	keep, drop := thin(next.history, now)
	next.history = keep
	for _, m := range drop {
		s.key = numberedKey(s.key[:0], kindHistory, m.number)
		if err := s.batch.Delete(s.key, nil); err != nil {
			return err
		}
	}
	return nil
}

func describe(id server.ID) string {
	if id.UUID != "" {
		return id.UUID
	}
	return fmt.Sprintf("%s server id %d", id.Flavor, id.ServerID)
}
