package checkpoint

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A record is read by the number that its commit had, until all its rows are written, also after a start.
func TestRecords(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	fatal(t, s.Commit(sentRange(1, 3), nil, nil, 0))
	first := s.Newest()
	fatal(t, s.Commit(nil, identities(sentRange(1, 1)), at(5), 0)) // no sent row: no record
	if s.Newest() != first {
		t.Errorf("record %d after a commit without sent rows, before it %d", s.Newest(), first)
	}
	fatal(t, s.Commit(sentRange(4, 9), nil, nil, 0))
	second := s.Newest()
	check := func() {
		t.Helper()
		numbers, err := s.Records()
		fatal(t, err)
		if len(numbers) != 2 || numbers[0] != first || numbers[1] != second || s.Newest() != second {
			t.Fatalf("records %v, newest %d, want %d and %d", numbers, s.Newest(), first, second)
		}
		for number, want := range map[uint64]int{first: 2, second: 6, second + 1: 0} {
			rows, err := s.Sent(number, nil)
			fatal(t, err)
			if len(rows) != want || want > 0 && rows[0].Since.IsZero() {
				t.Errorf("record %d: %v, want %d rows", number, rows, want)
			}
		}
	}
	check()
	fatal(t, s.Close())
	s = openMem(t, files)
	check()
	for _, c := range sentRange(1, 10) {
		row, found, err := s.SentRow(c.Identity)
		fatal(t, err)
		if want := c.ID != "1" && c.ID != "10"; found != want || found && (row.Identity != c.Identity || row.Since.IsZero()) {
			t.Errorf("row %s: %+v %v", c.ID, row, found)
		}
	}
	if s.Journalled() != 8 {
		t.Errorf("%d rows are journalled", s.Journalled())
	}
	for _, c := range []struct {
		row  int
		left bool
		want bool
	}{{2, false, false}, {2, true, true}, {2, true, false}, {3, true, true}, {3, false, true}, {10, true, false}} {
		id := sentRange(c.row, c.row)[0].Identity
		if changed := s.SetLeft(id, c.left); changed != c.want || s.IsLeft(id) != (c.left && c.row != 10) {
			t.Errorf("row %d: left %v, changed %v", c.row, s.IsLeft(id), changed)
		}
	}
	if row, found, err := s.SentRow(sentRange(2, 2)[0].Identity); err != nil || !found {
		t.Errorf("the row that is left: %+v %v %v", row, found, err)
	}
	fatal(t, s.Commit(nil, identities(sentRange(2, 3)), nil, 0))
	if s.IsLeft(sentRange(2, 2)[0].Identity) {
		t.Error("a row that is written is left")
	}
	if rows, err := s.Sent(first, nil); err != nil || len(rows) != 0 {
		t.Errorf("%v %v: all its rows are written", rows, err)
	}
	fatal(t, s.Close())
}

// Rows are left, and fetched, while others are committed.
func TestMarksDuringCommits(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	fatal(t, s.Commit(sentRange(1, 50), nil, nil, 0))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 2000 {
			s.SetLeft(sentRange(n%50+1, n%50+1)[0].Identity, n/50%2 == 0)
		}
	}()
	for n := range 20 {
		fatal(t, s.Commit(sentRange(100+n, 100+n), nil, nil, 0))
	}
	<-done
	if s.Journalled() != 70 {
		t.Errorf("%d rows are journalled", s.Journalled())
	}
	fatal(t, s.Close())
}
