package relay

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Connections that were opened to the server before stay unused once the reader has followed to another one, without a sign that would make it connect again.
func TestGateAfterAFailover(t *testing.T) {
	first, second := server.ID{Flavor: outbox.MySQL, UUID: "first"}, server.ID{Flavor: outbox.MySQL, UUID: "second"}
	g := NewGate()
	if !g.Still(first) || !g.Still(second) {
		t.Error("a connection is refused before a server is accepted")
	}
	g.accept(first)
	if !g.Still(first) || g.Still(second) {
		t.Error("the first server is accepted")
	}
	g.accept(second)
	if g.Still(first) || !g.Still(second) {
		t.Error("the second server is accepted, connections to the first one are used")
	}
	select {
	case <-g.refused:
		t.Error("the reader is made to connect again")
	default:
	}
}
