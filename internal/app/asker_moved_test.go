package app

import (
	"sync/atomic"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// After a failover behind one address connections to the old server stay open. The relay asks the new one: who answers and where its log ends at once, and for
// the end alone once the reader has accepted it. A sweep that took the old server's end for the new one's would publish rows that the log brings again.
func TestTheRelayAsksTheServerOfAfterAFailover(t *testing.T) {
	before, after := testkit.SharedDatabase(t, testkit.MySQL), testkit.SharedDatabase(t, testkit.MariaDB)
	proxy := testkit.NewProxy(t, before.Addr())
	config := server.Config{Address: proxy.Addr(), User: "root"}
	var accepted atomic.Pointer[server.ID]
	tables, err := server.Open(config, nil, server.Session{Still: func(id server.ID) bool {
		is := accepted.Load()
		return is == nil || is.Same(id)
	}})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, tables.Close()) }()
	s := relaySource{config: config, tables: &asker{db: tables}}
	old, _, err := s.Look(t.Context())
	testkit.Must(t, err)
	accepted.Store(&old.ID)
	_, err = s.End(t.Context())
	testkit.Must(t, err)

	proxy.SetTarget(after.Addr())
	info, end, err := s.Look(t.Context())
	testkit.Must(t, err)
	if info.ID.Same(old.ID) {
		t.Error("the old server answers who answers")
	}
	accepted.Store(&info.ID)
	_, _ = s.End(t.Context()) // by the old server's statement, perhaps
	at, err := s.End(t.Context())
	testkit.Must(t, err)
	_, next, err := s.Look(t.Context())
	testkit.Must(t, err)
	if at.Compare(end) < 0 || next.Compare(at) < 0 {
		t.Errorf("the end is %s, before it %s, after it %s", at, end, next)
	}
}
