package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// ErrNothing says that a state has no checkpoint yet.
var ErrNothing = errors.New("the state has no checkpoint yet: there is nothing to move")

// State is an exported state that was read to its end.
type State struct {
	Head
	lines []exported
}

// ReadState reads what Export wrote, to its end. Nothing that does not read back is taken: a file that is cut or changed is an error.
func ReadState(r io.Reader) (*State, error) {
	lines := json.NewDecoder(r)
	lines.DisallowUnknownFields()
	s := &State{}
	if err := lines.Decode(&s.Head); err != nil {
		return nil, fmt.Errorf("line 1 is not the head of an exported state: %w", err)
	}
	switch {
	case s.Format != exportFormat:
		return nil, fmt.Errorf("line 1 says that it is %q, not %q", s.Format, exportFormat)
	case s.Version != exportVersion:
		return nil, fmt.Errorf("it has version %d of the form, this release reads %d", s.Version, exportVersion)
	case s.Checkpoint.IsZero():
		return nil, ErrNothing
	}
	for {
		var line exported
		err := lines.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			return nil, errors.New("it ends before its last line: it was cut, export the state again")
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", len(s.lines)+2, err)
		case line.End == nil:
			s.lines = append(s.lines, line)
		case line.End.Records != len(s.lines):
			return nil, fmt.Errorf("it has %d records and says that it has %d", len(s.lines), line.End.Records)
		case lines.More():
			return nil, errors.New("more lines follow its last line")
		default:
			return s, s.check()
		}
	}
}

// check refuses lines that hold nothing or more than one thing.
func (s *State) check() error {
	for i, line := range s.lines {
		n := 0
		for _, set := range []bool{line.History != nil, line.Gap != nil, line.Journal != nil, line.Wait != nil, line.Redelivery != nil, line.Pause != nil} {
			if set {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("line %d holds %d records, one is right", i+2, n)
		}
	}
	return nil
}

// Rows counts the rows of the journal and those that wait.
func (s *State) Rows() (journal, waits int) {
	for _, line := range s.lines {
		if line.Journal != nil {
			journal++
		}
		if line.Wait != nil {
			waits++
		}
	}
	return journal, waits
}

// Import writes an exported state into a store that has no checkpoint yet. It writes one synced batch: all of it or nothing. It
// also adds an entry about the import to the history. The values that a Store keeps in memory are read by the next Open: close
// this Store afterwards.
func (s *Store) Import(from *State) error {
	return s.files.update(func(b *batch) error {
		if s.progress.hasCheckpoint || s.journal.len() > 0 {
			return errors.New("the state directory has a state already")
		}
		next := s.progress
		for _, line := range from.lines {
			if err := s.putExported(b, &next, line); err != nil {
				return err
			}
		}
		return next.putMove(b, time.Now(), from.Source, from.CheckpointAt, from.Checkpoint, "imported: exported at "+from.At.Format(time.RFC3339))
	}, nil)
}

// putExported adds a line to the batch.
func (s *Store) putExported(b *batch, next *progress, line exported) error {
	switch {
	case line.History != nil:
		return next.putHistory(b, *line.History)
	case line.Gap != nil:
		return b.putJSON(numberedKey(nil, kindGap, line.Gap.ID), line.Gap)
	case line.Journal != nil:
		j := line.Journal
		return s.journal.putSent(b, j.At, []outbox.Completion{{Identity: j.identity(), BrokerID: j.BrokerID}})
	case line.Wait != nil:
		return b.putWait(kindWait, line.Wait.entry())
	case line.Redelivery != nil:
		return b.putWait(kindRedelivery, line.Redelivery.entry())
	}
	return b.putJSON([]byte{kindPause}, line.Pause)
}

func (w *waiting) entry() table.Waiting {
	return table.Waiting{Identity: w.identity(), Wait: table.Wait{Due: w.Due, Attempts: w.Attempts}}
}
