package crash

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// lesser are the layouts that have less, and one without a status, whose bodies may be any bytes.
func lesser() (list []*layouts.Layout) {
	for _, layout := range append(layouts.All(), layouts.LogOnly()...) {
		if _, is := sampled[layout.Name]; is || layout.Name == "F2" {
			list = append(list, layout)
		}
	}
	return list
}

// leased is the position in the lease.
func (g *group) leased(t *testing.T) (at outbox.Position) {
	t.Helper()
	testkit.Must(t, g.loads[0].Table.DB.QueryRowContext(t.Context(),
		"SELECT log_file, log_offset FROM canal_outbox_lease WHERE epoch > 0").Scan(&at.File, &at.Offset))
	return at
}

// A table without a status does not show what was published, so a take-over after a kill repeats the rows after the position in
// the lease, once. It repeats nothing before it.
func TestTakeOverRepeatsOnlyWhatIsBehindTheLease(t *testing.T) {
	t.Parallel()
	g := newGroup(t, testkit.SharedMySQL(t), 2, layouts.LogOnly()[1])
	load := g.loads[0]
	load.Run(t, 200, 1)
	g.account(t)
	before, end := load.Ledger.Len(), relay.LogEnd(t, g.db.Root())
	testkit.WaitFor(t, patience, "the lease to have the end of the log", func() bool { return g.leased(t).Compare(end) >= 0 })
	known := g.received(t, load)

	stop := g.write(t)
	g.more(t)
	g.relays[0].Kill()
	g.taken(t, 0)
	g.more(t)
	stop()
	account := g.account(t)[0]
	for id, copies := range account.Copies {
		if known[id] || copies > 1 {
			t.Errorf("%s was sent %d more times; known to the lease: %v", id, copies, known[id])
		}
	}
	t.Logf("%d rows before the position in the lease, %d behind it, %d copies", before, load.Ledger.Len()-before, account.Duplicates())
	g.relays[1].Stop(t)
}
