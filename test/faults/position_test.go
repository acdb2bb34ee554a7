package faults

import (
	"context"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// A position that an operator gives by file and offset gets the GTID set that belongs to it: without that the checkpoint
// would name only what came after, and the next start would ask for everything before, which may be purged.
func TestA01_APositionByFileIsCompletedByItsGTIDs(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start()
		at := l.position()
		l.commit(keys("a", 10)...)
		l.sent()
		if _, err := l.admin().SetCheckpoint(context.Background(), admin.Target{File: at.File, Pos: uint64(at.Offset)}); err != nil {
			t.Fatal(err)
		}
		l.reading()
		l.commit(keys("b", 10)...)
		l.sent()
		before, err := outbox.ParseGTIDSet(outbox.Flavor(flavor), at.GTIDs)
		testkit.Must(t, err)
		l.wait("a checkpoint behind the rows, with all GTIDs", func() bool {
			c, err := l.admin().Checkpoint(context.Background())
			testkit.Must(t, err)
			have, err := outbox.ParseGTIDSet(outbox.Flavor(flavor), c.Position.GTIDs)
			testkit.Must(t, err)
			return c.Position.Compare(at) > 0 && have.Contains(before)
		})
		l.stop()
		l.start()
		l.account(append(keys("a", 10), keys("b", 10)...)...)
		l.wantGaps()
	})
}
