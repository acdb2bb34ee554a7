package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Two relays with two state directories work on one table: both publish every row. Each of them reports the other in status, log
// and metric, in either order of their starts and over a cut of all connections. Each also reports the end of the other.
func TestTwoRelaysOnOneTableSayIt(t *testing.T) {
	onBothAtOnce(t, func(t *testing.T, flavor testkit.Flavor) {
		first := newLab(t, testkit.SharedDatabase(t, flavor))
		first.user = "twofold"
		testkit.Must(t, first.db.CreateUser(context.Background(), first.user, "", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT, UPDATE ON "+first.schema+".*"))
		t.Cleanup(func() { testkit.Exec(t, first.db.Root(), "DROP USER twofold") })
		first.start()
		second := newLab(t, first.db)
		second.user, second.schema, second.sql = first.user, first.schema, first.sql
		second.start()
		const other, none = "another relay works on the same tables", "no other relay works on the tables any more"
		logged := func(message string) int { return first.logs.FilterMessageSnippet(message).Len() }
		both := []*lab{first, second}
		seen := map[*lab]uint64{}
		for _, l := range both {
			l.wait("the other relay to be seen", func() bool { return l.twofold() != 0 })
			if n := l.metric("other_relays"); n != 1 {
				t.Errorf("other_relays is %v", n)
			}
			seen[l] = l.twofold()
		}
		first.wait("the log to say so", func() bool { return logged(other) > 0 }) // shortly after status does
		if logged(other) != 1 || logged(none) != 0 {
			t.Errorf("the log has %d lines about another relay, and %d that there is none", logged(other), logged(none))
		}
		first.kill("USER = 'twofold'")
		for _, l := range both {
			l.wait("the other relay to be seen on its next connection", func() bool { now := l.twofold(); return now != 0 && now != seen[l] })
		}
		second.stop()
		first.wait("the end of the other relay to be seen", func() bool { return first.twofold() == 0 && first.metric("other_relays") == 0 })
		// The log shows it shortly after status. Between the two connections one look may find no relay.
		first.wait("the log to say so", func() bool { return logged(none) == logged(other) })
		if n := logged(none); n > 2 {
			t.Errorf("the log has %d lines that there is no other relay", n)
		}
	})
}

// twofold is the connection of the other relay that status says publishes the rows too; 0 when it says nothing of one.
func (l *lab) twofold() uint64 {
	l.t.Helper()
	s, err := l.admin().Status(context.Background())
	testkit.Must(l.t, err)
	said := strings.Contains(strings.Join(s.Problems, "\n"), l.schema+".t_local_message")
	if said != (len(s.OtherRelays) > 0) || said && s.State != "degraded" {
		l.t.Errorf("%s: %q, other relays %+v", s.State, s.Problems, s.OtherRelays)
	}
	if !said {
		return 0
	}
	return s.OtherRelays[0].Connection
}
