package security

import (
	"bytes"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// tap forwards connections to a server and records their bytes, like an observer on the network.
type tap struct {
	*testkit.Proxy

	mu    sync.Mutex
	seen  bytes.Buffer
	flips int // pieces from the server still to damage
}

// newTap listens on a loopback address. The test certificates are not valid for 127.0.0.2.
func newTap(t testing.TB, host, target string) *tap {
	t.Helper()
	p := &tap{}
	p.Proxy = testkit.NewProxyWith(t, host, target, testkit.ProxyHooks{Pass: p.note})
	return p
}

func (p *tap) note(piece []byte, fromServer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Write(piece)
	if fromServer && p.flips > 0 {
		p.flips--
		piece[len(piece)-1] ^= 1
	}
}

// flip damages one bit in each of the next pieces from the server.
func (p *tap) flip(pieces int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flips = pieces
}

// flipped reports that all pieces were damaged.
func (p *tap) flipped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flips == 0
}

// saw reports whether a text was sent unencrypted.
func (p *tap) saw(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.seen.Bytes(), []byte(text))
}
