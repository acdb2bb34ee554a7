package checkpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// The form of an exported state: one JSON object in a line, the head first, then records, then an end with their number.
const (
	exportFormat  = "canal-outbox state"
	exportVersion = 1
)

// Head is the first line of an exported state.
type Head struct {
	Format       string          `json:"format"`
	Version      int             `json:"version"`
	At           time.Time       `json:"exported_at"`
	Source       server.ID       `json:"source"`
	Checkpoint   outbox.Position `json:"checkpoint"`
	CheckpointAt time.Time       `json:"checkpoint_at"`
}

// exported is any other line: exactly one of its fields is set.
type exported struct {
	History *Entry      `json:"history,omitempty"`
	Gap     *outbox.Gap `json:"gap,omitempty"`
	Journal *journalled `json:"journal,omitempty"`
	Wait    *waiting    `json:"wait,omitempty"`
	// Redelivery is a SENT row that no consumer has finished: how often it went out again, and when it may do so next.
	Redelivery *waiting      `json:"redelivery,omitempty"`
	Pause      *outbox.Pause `json:"pause,omitempty"`
	End        *ending       `json:"end,omitempty"`
}

// ending says how many lines are between the head and itself.
type ending struct {
	Records int `json:"records"`
}

// journalled is a row that the broker has taken and the table has not as SENT.
type journalled struct {
	row
	At       time.Time `json:"at"`
	BrokerID string    `json:"broker_id,omitempty"`
}

// waiting is a row with a due time and a count that its table has no columns for.
type waiting struct {
	row
	Due      time.Time `json:"due"`
	Attempts int       `json:"attempts"`
}

// row names a row. An identity may be bytes that are no text, which JSON would change.
type row struct {
	Table     string `json:"table"`
	ID        []byte `json:"id"`
	MessageID []byte `json:"message_id"`
}

func rowOf(id outbox.Identity) row {
	return row{Table: id.Table, ID: []byte(id.ID), MessageID: []byte(id.MessageID)}
}

func (r row) identity() outbox.Identity {
	return outbox.Identity{Table: r.Table, ID: string(r.ID), MessageID: string(r.MessageID)}
}

// Export writes the whole state as of now, while other calls continue to write: source, checkpoint, history, gaps, journal,
// waits, counts of redeliveries and pause. It leaves out column versions, because a relay reads them again, and the list of
// changes, which belongs to this directory.
func (s *Store) Export(w io.Writer) (err error) {
	s.files.life.RLock()
	defer s.files.life.RUnlock()
	if err := s.files.failed(); err != nil {
		return err
	}
	shot := s.files.db.NewSnapshot()
	defer func() { err = errors.Join(err, shot.Close()) }()
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	head, err := headOf(shot)
	if err != nil {
		return classify(s.files.dir, err)
	}
	if err := lines.Encode(head); err != nil {
		return err
	}
	it, err := shot.NewIter(nil)
	if err != nil {
		return classify(s.files.dir, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	n, rows := 0, journalReader{}
	for ok := it.First(); ok; ok = it.Next() {
		list, err := exportedFrom(&rows, it.Key(), it.Value())
		if err != nil {
			return classify(s.files.dir, err)
		}
		for _, line := range list {
			if err := lines.Encode(line); err != nil {
				return err
			}
		}
		n += len(list)
	}
	if err := errors.Join(it.Error(), rows.end()); err != nil {
		return classify(s.files.dir, err)
	}
	return errors.Join(lines.Encode(exported{End: &ending{n}}), out.Flush())
}

// headOf reads what there is one of. Without a checkpoint there is nothing to move.
func headOf(shot *pebble.Snapshot) (h Head, err error) {
	h = Head{Format: exportFormat, Version: exportVersion, At: time.Now().UTC().Truncate(time.Millisecond)}
	for _, kind := range []byte{kindSource, kindCheckpoint} {
		key := []byte{kind}
		value, closer, err := shot.Get(key)
		if errors.Is(err, pebble.ErrNotFound) {
			return h, ErrNothing
		}
		if err != nil {
			return h, err
		}
		if kind == kindSource {
			err = decodeJSON(key, value, &h.Source)
		} else {
			h.Checkpoint, h.CheckpointAt, err = decodeCheckpoint(key, value)
		}
		if err = errors.Join(err, closer.Close()); err != nil {
			return h, err
		}
	}
	return h, nil
}

// exportedFrom are the lines of a record: one for each row of the journal, none for what is not exported.
func exportedFrom(rows *journalReader, key, value []byte) (list []exported, err error) {
	if isJournal(key[0]) {
		err = rows.read(key, value, func(r journalRow) {
			list = append(list, exported{Journal: &journalled{row: rowOf(r.Identity), At: r.at, BrokerID: r.BrokerID}})
		})
		return list, err
	}
	var line exported
	switch key[0] {
	case kindHistory:
		var e Entry
		e, err = decodeEntry(key, value)
		line.History = &e
	case kindGap:
		line.Gap = &outbox.Gap{}
		err = decodeJSON(key, value, line.Gap)
	case kindWait, kindRedelivery:
		var w table.Waiting
		w, err = decodeWait(key, value)
		counted := &waiting{row: rowOf(w.Identity), Due: w.Due, Attempts: w.Attempts}
		if key[0] == kindWait {
			line.Wait = counted
		} else {
			line.Redelivery = counted
		}
	case kindPause:
		line.Pause = &outbox.Pause{}
		err = decodeJSON(key, value, line.Pause)
	default:
		return nil, nil
	}
	return []exported{line}, err
}
