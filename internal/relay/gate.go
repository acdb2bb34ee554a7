package relay

import (
	"context"
	"fmt"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Gate holds the server that was checked and accepted; every connection to the tables is compared with it. Make it with NewGate,
// before the pool of the tables.
type Gate struct {
	refused chan server.ID // holds the server of one connection that was refused since the last accept

	mu       sync.Mutex
	accepted server.ID
}

// NewGate makes a gate that lets everybody pass until a server is accepted: only set-up reads happen before.
func NewGate() *Gate { return &Gate{refused: make(chan server.ID, 1)} }

func (g *Gate) accept(id server.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.accepted = id
	select {
	case <-g.refused: // by the server that was accepted before
	default:
	}
}

func (g *Gate) Current() server.ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.accepted
}

// Still reports whether connections to a server may be used that Guard let pass: not after the reader has followed to another one.
func (g *Gate) Still(id server.ID) bool {
	accepted := g.Current()
	return accepted == server.ID{} || accepted.Same(id)
}

// Guard refuses connections to a server that the reader has not accepted; it is given to the pool of the tables. During
// a failover it refuses until the reader has checked the new server, which it makes it do.
func (g *Gate) Guard(_ context.Context, id server.ID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch accepted := g.accepted; {
	case accepted == server.ID{}:
		return nil
	case accepted.Same(id):
		return nil
	default:
		select {
		case g.refused <- id:
		default:
		}
		return fmt.Errorf("expected %s", accepted)
	}
}
