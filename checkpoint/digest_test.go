package checkpoint

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The counts of the digest are those of before a restart; a new directory has none.
func TestG26_TheCountsOfTheDigestAreKept(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	if d, err := s.Digest.Day(); err != nil || d != (Day{}) {
		t.Errorf("new: %+v, %v", d, err)
	}
	want := Day{Since: time.Date(2026, 1, 2, 8, 0, 0, 0, time.UTC), Failed: 3, Again: 1}
	fatal(t, s.Digest.Save(Day{Failed: 1}))
	fatal(t, s.Digest.Save(want))
	fatal(t, s.Close())
	s = openMem(t, files)
	if d, err := s.Digest.Day(); err != nil || d != want {
		t.Errorf("%+v, %v", d, err)
	}
	fatal(t, s.Close())
}
