package checkpoint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// What was measured is there after a restart, each number once, and an export leaves it out.
func TestG46_PiecesOfThePast(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	fatal(t, s.SetSource(server.ID{Flavor: outbox.MariaDB, ServerID: 7}))
	fatal(t, s.Commit(nil, nil, at(1), 0))
	for _, piece := range []string{"1 old", "2 b", "1 a"} {
		fatal(t, s.Past.Save(uint64(piece[0]-'0'), []byte(piece)))
	}
	fatal(t, s.Close())
	s = openMem(t, files)
	var got []string
	fatal(t, s.Past.All(func(slot uint64, piece []byte) { got = append(got, fmt.Sprintf("%d: %s", slot, piece)) }))
	if text := strings.Join(got, ", "); text != "1: 1 a, 2: 2 b" {
		t.Errorf("got %s", text)
	}
	var exported strings.Builder
	fatal(t, s.Export(&exported))
	if strings.Contains(exported.String(), "2 b") {
		t.Error("the export has it")
	}
	fatal(t, s.Close())
}
