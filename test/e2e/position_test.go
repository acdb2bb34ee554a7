package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
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
		if _, err := l.admin().SetCheckpoint(context.Background(), operator.Target{File: at.File, Pos: uint64(at.Offset)}); err != nil {
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

// A position inside an event, or at an event inside a transaction, is refused, with a running relay and without one. The boundaries
// that the refusal names are taken, and nothing is lost, repeated or called a gap.
func TestAPositionInsideATransactionIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})) // the log is read from its beginning: that of a shared server is long
		l.start()
		begin := l.position()
		l.exec(insert(keys("one", 20)...))
		l.sent()
		inside := []uint64{begin.Offset + 3, l.rowsEvent(begin)}
		check := func(set func(operator.Target) (operator.Preview, error)) {
			t.Helper()
			for _, pos := range inside {
				_, err := set(operator.Target{File: begin.File, Pos: pos})
				var coded *operator.Error
				if !errors.As(err, &coded) || coded.Code != operator.CodeRefused {
					t.Fatalf("%d: %v", pos, err)
				}
				boundaries := regexp.MustCompile(`--file (\S+) --pos (\d+)`).FindAllStringSubmatch(coded.Message, -1)
				if len(boundaries) != 2 {
					t.Errorf("%d: %v", pos, err)
				}
				for _, b := range boundaries {
					offset, err := strconv.ParseUint(b[2], 10, 64)
					testkit.Must(t, err)
					if _, err := set(operator.Target{File: b[1], Pos: offset}); err != nil {
						t.Error(err)
					}
				}
			}
		}
		check(func(target operator.Target) (operator.Preview, error) {
			l.reading()
			return l.admin().SetCheckpoint(context.Background(), target)
		})
		l.reading()
		l.stop()
		check(func(target operator.Target) (operator.Preview, error) {
			o, err := app.OpenOffline(t.Context(), l.config(), true)
			testkit.Must(t, err)
			p, err := o.SetCheckpoint(context.Background(), target)
			testkit.Must(t, o.Close())
			return p, err
		})
		l.start()
		l.account(keys("one", 20)...)
		if gaps := l.gaps(); slices.ContainsFunc(gaps, func(cause string) bool { return cause != string(outbox.GapOperator) }) {
			t.Errorf("gaps %q", gaps)
		}
	})
}

// rowsEvent is where the first event with inserted rows behind a position begins, which is inside its transaction.
func (l *lab) rowsEvent(from outbox.Position) uint64 {
	l.t.Helper()
	events, err := server.Show(context.Background(), l.db.Root(), fmt.Sprintf("SHOW BINLOG EVENTS IN '%s' FROM %d", from.File, from.Offset))
	testkit.Must(l.t, err)
	for _, e := range events {
		if strings.HasPrefix(e["event_type"], "Write_rows") {
			pos, err := strconv.ParseUint(e["pos"], 10, 64)
			testkit.Must(l.t, err)
			return pos
		}
	}
	l.t.Fatalf("no rows behind %s", from)
	return 0
}
