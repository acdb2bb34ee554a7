package app

import (
	"context"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// presence is server.Presence at the server that the relay follows now. Locks are of one server, and after a fail-over the
// old one may be alive: the connection there is given up, and a new one is made as the reader made its own.
type presence struct {
	source   server.Config
	tables   []string
	leased   bool
	accepted func() server.ID

	at   server.ID
	here *server.Presence // nil before the first look
}

// look is called by one goroutine.
func (p *presence) look(ctx context.Context) ([]server.OtherRelay, error) {
	at := p.accepted()
	if at == (server.ID{}) {
		return nil, relay.ErrNotRunning
	}
	if p.here == nil || p.at != at {
		_ = p.close() // it returns nil
		var err error
		if p.here, err = server.NewPresence(p.source, p.tables, p.leased); err != nil {
			return nil, err
		}
		p.at = at
	}
	return p.here.Look(ctx)
}

// close releases the locks. Only then another relay is alone.
func (p *presence) close() error {
	if p.here == nil {
		return nil
	}
	_ = p.here.Close() // the error of a connection that broke earlier is no failure of this run
	p.here = nil
	return nil
}
