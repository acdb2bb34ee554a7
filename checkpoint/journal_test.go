package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// sentRange are rows with ids from first to last.
func sentRange(first, last int) (rows []outbox.Completion) {
	for i := first; i <= last; i++ {
		rows = append(rows, outbox.Completion{
			Identity: outbox.Identity{Table: "shop.t_local_message", ID: fmt.Sprint(i), MessageID: fmt.Sprint("order:", i)},
			BrokerID: fmt.Sprint("orders-3@", i),
		})
	}
	return rows
}

func identities(rows []outbox.Completion) (ids []outbox.Identity) {
	for _, r := range rows {
		ids = append(ids, r.Identity)
	}
	return ids
}

// journalRecords counts the records of the journal on the disk, and their bytes.
func journalRecords(t *testing.T, s *Store) (n, bytes int) {
	t.Helper()
	fatal(t, s.files.scan(kindWritten, kindSent, func(key, value []byte) error {
		n, bytes = n+1, bytes+len(key)+len(value)
		return nil
	}))
	return n, bytes
}

// What one commit sends is one record of a few bytes a row. Rows leave it one by one, and the record goes with the last of them, also when
// another process reads what the first has left.
func TestACommitIsOneRecordOfTheJournal(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	rows := sentRange(100_001, 100_500)
	fatal(t, s.Commit(rows, nil, nil, 0))
	if n, bytes := journalRecords(t, s); n != 1 || bytes > 12*len(rows) {
		t.Errorf("%d records of %d bytes for %d rows", n, bytes, len(rows))
	}
	for _, left := range []int{250, 3, 1} {
		fatal(t, s.Commit(nil, identities(rows[left:]), nil, 0))
		rows = rows[:left]
		fatal(t, s.Close())
		s = openMem(t, files)
		if got := mustJournal(t, s); !slices.Equal(identities(got), identities(rows)) || s.Stats().JournalEntries != left {
			t.Fatalf("%d rows in the journal, %d counted, want %d", len(got), s.Stats().JournalEntries, left)
		}
	}
	fatal(t, s.Commit(sentRange(7, 7), identities(rows), nil, 0))
	fatal(t, s.Commit(nil, identities(sentRange(7, 7)), nil, 0))
	if n, _ := journalRecords(t, s); n != 0 {
		t.Errorf("%d records are left when all is written", n)
	}
	fatal(t, s.Close())
}

func mustJournal(t *testing.T, s *Store) []outbox.Completion {
	t.Helper()
	list, err := s.Journal()
	fatal(t, err)
	return list
}

// A row that is sent again, in the same commit or in a later one, has one entry, the newest.
func TestARowHasOneEntry(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	rows := append(sentRange(1, 3), sentRange(2, 2)...)
	rows[3].BrokerID = "the second"
	fatal(t, s.Commit(rows, nil, nil, 0))
	again := sentRange(3, 3)
	again[0].BrokerID = "the third"
	fatal(t, s.Commit(again, nil, nil, 0))
	fatal(t, s.Close())
	s = openMem(t, files)
	got := map[string]string{}
	for _, r := range mustJournal(t, s) {
		got[r.ID] += r.BrokerID
	}
	if len(got) != 3 || got["2"] != "the second" || got["3"] != "the third" || s.Stats().JournalEntries != 3 {
		t.Errorf("journal %v, %d counted", got, s.Stats().JournalEntries)
	}
	fatal(t, s.Commit(nil, identities(sentRange(1, 3)), nil, 0))
	if n, _ := journalRecords(t, s); n != 0 {
		t.Errorf("%d records are left when all is written", n)
	}
	fatal(t, s.Close())
}

// C05: bits whose record is gone, or has another number of rows, are damage and not an empty journal.
func TestC05_PartOfTheJournalIsGone(t *testing.T) {
	for name, harm := range map[string]func(s *Store) error{
		"record": func(s *Store) error { return s.files.db.Delete(numberedKey(nil, kindSent, 1), pebble.Sync) },
		"rows": func(s *Store) error {
			return s.files.update(func(b *batch) error {
				b.key, b.val = numberedKey(nil, kindSent, 1), appendSent(nil, time.Now(), sentRange(1, 1))
				return b.put()
			}, nil)
		},
		"bits": func(s *Store) error {
			return s.files.update(func(b *batch) error { return b.putBlob(numberedKey(nil, kindWritten, 1), []byte{0xff, 0xff}) }, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := vfs.NewMem()
			s := openMem(t, files)
			fatal(t, s.Commit(sentRange(1, 16), nil, nil, 0))
			fatal(t, s.Commit(nil, identities(sentRange(1, 9)), nil, 0))
			fatal(t, harm(s))
			fatal(t, s.Close())
			_, err := Open(stateDir, Options{FS: files, Simulated: true})
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("Open: %v", err)
			}
		})
	}
}
