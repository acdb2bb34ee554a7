package checkpoint

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The list of changes is bounded, newest first, and its numbers go on over a restart.
func TestChangesAreBounded(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	for i := range maxChanges + 5 {
		fatal(t, s.AddChange(Change{By: "somebody", What: fmt.Sprint(i)}))
		if i == maxChanges {
			fatal(t, s.Close())
			s = openMem(t, files)
		}
	}
	got, err := s.Changes()
	fatal(t, err)
	if len(got) != maxChanges || got[0].Number != maxChanges+5 || got[0].What != fmt.Sprint(maxChanges+4) || got[maxChanges-1].Number != 6 {
		t.Errorf("%d changes, the newest %+v, the oldest %+v", len(got), got[0], got[len(got)-1])
	}
	fatal(t, s.Close())
}
