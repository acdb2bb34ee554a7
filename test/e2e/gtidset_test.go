package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// A60: a server whose history has thousands of holes, as after years of failovers and skipped transactions. The set goes to
// the server at each start of a stream and into each checkpoint.
func TestA60_LargeGTIDSet(t *testing.T) {
	relay.Long(t)
	t.Parallel()
	const intervals, rows = 5000, 2000
	l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MySQL}))
	var set strings.Builder
	set.WriteString("+3e11fa47-71ca-11e1-9e33-c80aa9429562")
	for i := range intervals {
		fmt.Fprintf(&set, ":%d-%d", i*1000+1, i*1000+500)
	}
	purged := set.String()
	if l.db.Before(8, 0) { // it takes a whole set, before the first transaction
		testkit.Exec(t, l.db.Root(), l.db.ResetStatement())
		purged = purged[1:]
	}
	testkit.Exec(t, l.db.Root(), "SET GLOBAL gtid_purged = ?", purged)
	l.start()
	l.commit(keys("reading", rows)...)
	l.sent()
	if n := l.fromSweep(); n > 0 {
		t.Errorf("%d rows were left to the sweep", n)
	}
	l.stop()
	l.commit("meanwhile")
	l.start()
	l.reading()
	l.commit(keys("again", 50)...)
	l.sent()
	at, err := l.admin().Checkpoint(t.Context())
	testkit.Must(t, err)
	if n := strings.Count(at.Position.GTIDs, ":"); n < intervals {
		t.Errorf("the checkpoint has %d intervals", n)
	}
	l.account(slices.Concat(keys("reading", rows), keys("again", 50), []string{"meanwhile"})...)
	l.wantGaps()
	if n := l.fromSweep(); n > 1 { // a start sweeps, too: it may take the row of meanwhile before the reader has come to it
		t.Errorf("%d rows were left to the sweep", n)
	}
}
