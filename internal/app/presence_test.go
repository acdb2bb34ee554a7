package app

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// After a failover a relay shows itself at the new server, also while the old server still works.
func TestPresenceFollowsAFailOver(t *testing.T) {
	old, next := testkit.SharedDatabase(t, testkit.MariaDB), testkit.SharedMySQL(t)
	address := testkit.NewProxy(t, old.Addr())
	tables := []string{"failover.t_local_message"}
	accepted := server.ID{ServerID: 1}
	p := presence{
		source: server.Config{Address: address.Addr(), User: "root"}, tables: tables,
		accepted: func() server.ID { return accepted },
	}
	defer func() { testkit.Must(t, p.close()) }()
	present := func(d *testkit.Database) bool {
		t.Helper()
		others, err := p.look(t.Context())
		testkit.Must(t, err)
		seen, err := server.OtherRelays(t.Context(), d.Root(), tables)
		testkit.Must(t, err)
		return others == nil && len(seen) == 1
	}
	if !present(old) {
		t.Error("the relay is not seen")
	}
	address.SetTarget(next.Addr())
	accepted.ServerID = 2
	if !present(next) {
		t.Error("the relay is not seen at the new server")
	}
}
