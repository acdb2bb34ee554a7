package checkpoint

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The list of changes is bounded, newest first, and its numbers continue over a restart.
func TestChangesAreBounded(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	for i := range maxChanges + 5 {
		fatal(t, s.Changes.Add(&Change{By: "operator", What: fmt.Sprint(i)}))
		if i == maxChanges {
			fatal(t, s.Close())
			s = openMem(t, files)
		}
	}
	got, err := s.Changes.All()
	fatal(t, err)
	if len(got) != maxChanges || got[0].Number != maxChanges+5 || got[0].What != fmt.Sprint(maxChanges+4) || got[maxChanges-1].Number != 6 {
		t.Errorf("%d changes, the newest %+v, the oldest %+v", len(got), got[0], got[len(got)-1])
	}
	fatal(t, s.Close())
}

// A change that takes long is recorded before its work, and its end takes the place of its begin. After a kill in between the list shows
// that the end is missing.
func TestG51_TheEndOfAChangeTakesThePlaceOfItsBegin(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	done, cut := &Change{What: "retry", Before: "2000 rows", Unfinished: true}, &Change{What: "discard", Unfinished: true}
	fatal(t, s.Changes.Add(done))
	fatal(t, s.Changes.Add(cut))
	fatal(t, s.Changes.Add(&Change{Number: done.Number, What: "retry", Before: "2000 rows", After: "1999 rows"}))
	fatal(t, s.Close())
	s = openMem(t, files)
	fatal(t, s.Changes.Add(&Change{What: "sweep"}))
	got, err := s.Changes.All()
	fatal(t, err)
	if len(got) != 3 || got[0].Number != 3 || !got[1].Unfinished || got[1].What != "discard" || got[2].Unfinished || got[2].After != "1999 rows" {
		t.Errorf("%+v", got)
	}
	fatal(t, s.Close())
}
