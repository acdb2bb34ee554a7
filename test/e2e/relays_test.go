package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Two relays with two state directories work on one table: both publish every row. Each of them says so, in status, log and
// metric, whoever came first, and over a cut of all connections; and when the other one ends.
func TestTwoRelaysOnOneTableSayIt(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		first := newLab(t, testkit.SharedDatabase(t, flavor))
		first.user = "twofold"
		testkit.Must(t, first.db.CreateUser(context.Background(), first.user, "", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT, UPDATE ON "+first.schema+".*"))
		t.Cleanup(func() { testkit.Exec(t, first.db.Root(), "DROP USER twofold") })
		first.start()
		second := newLab(t, first.db)
		second.user, second.schema, second.sql = first.user, first.schema, first.sql
		second.start()
		for _, l := range []*lab{first, second} {
			l.wait("the other relay to be seen", func() bool { return l.twofold() })
			if n := l.metric("other_relays"); n != 1 {
				t.Errorf("other_relays is %v", n)
			}
		}
		first.kill("USER = 'twofold'")
		for _, l := range []*lab{first, second} {
			l.wait("the other relay to be seen again", func() bool { return l.twofold() })
		}
		second.stop()
		first.wait("the end of the other relay to be seen", func() bool { return !first.twofold() && first.metric("other_relays") == 0 })
		for _, message := range []string{"another relay works on the same tables", "no other relay works on the tables any more"} {
			logged := func() int { return first.logs.FilterMessageSnippet(message).Len() }
			first.wait("the log to say so", func() bool { return logged() > 0 }) // a moment after status does
			if n := logged(); n != 1 {
				t.Errorf("%q was logged %d times", message, n)
			}
		}
	})
}

// twofold tells whether status says that somebody else publishes the rows too.
func (l *lab) twofold() bool {
	l.t.Helper()
	s, err := l.admin().Status(context.Background())
	testkit.Must(l.t, err)
	said := strings.Contains(strings.Join(s.Problems, "\n"), l.schema+".t_local_message")
	if said != (len(s.OtherRelays) > 0) || said && s.State != "degraded" {
		l.t.Errorf("%s: %q, other relays %+v", s.State, s.Problems, s.OtherRelays)
	}
	return said
}
