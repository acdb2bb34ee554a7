package checkpoint

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Store is the open state directory: the position and the journal, which one commit writes together, the gaps and the pause. What else
// the directory keeps are its exported parts, each for the package that needs it.
type Store struct {
	Waits   *Waits   // of rows whose table has no columns for them
	Schemas *Schemas // column versions, of the reader
	Changes *Changes // what people did
	Past    *Past    // measurements
	Digest  *Digest  // counts of the alerts

	files *engine
	position
	gaps
	pauses
	journal journal // what is on the disk, by now or with the batch under way; the writer owns it
	entries int     // rows in the journal
	newest  uint64  // number of the newest record of the journal
}

// newStore makes a store and its parts around an engine that is not open yet.
func newStore(files *engine) *Store {
	return &Store{
		files: files, position: position{files: files}, gaps: gaps{files: files}, pauses: pauses{files: files}, journal: newJournal(),
		Waits: &Waits{files: files}, Schemas: &Schemas{files}, Changes: &Changes{files: files}, Past: &Past{files}, Digest: &Digest{files},
	}
}

// Commit writes one step of the fast path in one synced batch: sent enters the journal, written leaves it, and the checkpoint
// moves if the given one is ahead of it. A checkpoint that is not ahead is ignored, so that late calls do no harm (failure C06).
// A nil checkpoint changes nothing, and neither does one of another generation than that of the last Reset: it was read before the
// checkpoint was reset. A call that would change nothing writes nothing.
//
// Every completion in sent must have the completion ActionMarkSent: the journal is proof of delivery.
func (s *Store) Commit(sent []outbox.Completion, written []outbox.Identity, checkpoint *outbox.Position, generation uint64) error {
	for i := range sent {
		if sent[i].Action != outbox.ActionMarkSent {
			return errors.New("checkpoint: a " + sent[i].Action.String() + " completion was to enter the journal of sent rows")
		}
	}
	if err := s.files.startWriting(); err != nil {
		return err
	}
	defer s.files.endWriting()
	moves := checkpoint != nil && generation == s.progress.generation && s.progress.ahead(*checkpoint)
	if len(sent) == 0 && len(written) == 0 && !moves {
		return nil
	}
	b, now, next := &s.files.batch, time.Now(), s.progress
	err := s.journal.put(b, now, sent, written)
	if err == nil && moves {
		err = next.putAdvance(b, now, *checkpoint)
	}
	if err == nil && !b.Empty() {
		err = s.files.commit(pebble.Sync)
	}
	if err != nil {
		s.files.fail(err) // memory and disk may disagree about the journal
		return err
	}
	s.files.state.Lock()
	defer s.files.state.Unlock()
	s.progress = next
	s.entries, s.newest = s.journal.len(), s.journal.last
	return nil
}

// Newest is the number of the record in which the last Commit with sent rows has put them.
func (s *Store) Newest() uint64 {
	s.files.state.Lock()
	defer s.files.state.Unlock()
	return s.newest
}

// Records returns the numbers of the journal's records in the order of their commits.
func (s *Store) Records() (numbers []uint64, err error) {
	err = s.files.scan(kindSent, kindSent, func(key, _ []byte) error {
		number, err := numberOf(key)
		numbers = append(numbers, number)
		return err
	})
	return numbers, err
}

// Sent appends the rows of a record of the journal that are not written to an empty list. Their Since is the time of the commit.
func (s *Store) Sent(number uint64, rows []outbox.Completion) ([]outbox.Completion, error) {
	var at time.Time
	key := numberedKey(nil, kindSent, number)
	err := s.files.get(key, func(value []byte) (err error) {
		rows, at, err = decodeSent(key, value, rows)
		return err
	})
	if err != nil || len(rows) == 0 {
		return rows, err
	}
	r := journalReader{}
	key = numberedKey(nil, kindWritten, number)
	if err := s.files.get(key, func(value []byte) error { return r.readBits(key, value) }); err != nil {
		return rows[:0], err
	}
	written, err := r.take(newSentRows(number, len(rows)))
	if err != nil {
		return rows[:0], classify(s.files.dir, err)
	}
	rest := rows[:0]
	for i := range rows {
		if rows[i].Since = at; !written.has(i) {
			rest = append(rest, rows[i])
		}
	}
	return rest, nil
}

// Journal returns the rows that the broker has taken and MySQL has not written, in no particular order.
func (s *Store) Journal() (out []outbox.Completion, err error) {
	var rows journalReader
	err = s.files.scan(kindWritten, kindSent, func(key, value []byte) error {
		return rows.read(key, value, func(row journalRow) { out = append(out, row.Completion) })
	})
	if err == nil {
		err = classify(s.files.dir, rows.end())
	}
	return out, err
}

// Journalled is the number of rows in the journal.
func (s *Store) Journalled() int {
	s.files.state.Lock()
	defer s.files.state.Unlock()
	return s.entries
}

// SentRow returns a row of the journal. Its Since is the time of the commit.
func (s *Store) SentRow(id outbox.Identity) (row outbox.Completion, found bool, err error) {
	at, found := s.journal.find(id)
	if !found {
		return row, false, nil
	}
	rows, err := s.Sent(at.number(), nil)
	for i := range rows {
		if rows[i].Identity == id {
			return rows[i], true, err
		}
	}
	return row, false, err
}

// SetLeft marks a row of the journal as left there, or no more, and reports whether it was not so before. A mark is in memory alone.
func (s *Store) SetLeft(id outbox.Identity, left bool) (changed bool) {
	return s.journal.setLeft(id, left)
}

// IsLeft reports whether a row of the journal is marked as left there.
func (s *Store) IsLeft(id outbox.Identity) bool {
	at, found := s.journal.find(id)
	return found && at&1 == 1
}

// Stats is what `checkpoint show` and the status page add to the position itself.
type Stats struct {
	CheckpointAt       time.Time `json:"checkpoint_at"`       // when it was last moved; zero before the first
	JournalEntries     int       `json:"journal_entries"`     // taken by the broker, not yet written by MySQL
	HistoryEntries     int       `json:"history_entries"`     //
	UnacknowledgedGaps int       `json:"unacknowledged_gaps"` //
	DiskBytes          uint64    `json:"disk_bytes"`          // of the live store; quarantined ones are not counted
}

// Stats returns the present counts. After Close, DiskBytes is 0.
func (s *Store) Stats() Stats {
	s.files.state.Lock()
	stats := Stats{
		CheckpointAt: s.progress.at, JournalEntries: s.entries, HistoryEntries: len(s.progress.history), UnacknowledgedGaps: s.gaps.open,
	}
	s.files.state.Unlock()
	s.files.life.RLock()
	defer s.files.life.RUnlock()
	if s.files.failed() == nil {
		stats.DiskBytes = s.files.db.Metrics().DiskSpaceUsage()
	}
	return stats
}

// Free is the room on the file system of the open store, in bytes.
func (s *Store) Free() (uint64, error) { return free(s.files.system(), s.files.dir) }

// Close waits for the calls under way, then releases the directory. Later calls return ErrClosed; a second Close does
// nothing.
func (s *Store) Close() error { return s.files.close() }
