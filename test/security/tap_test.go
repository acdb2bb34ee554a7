package security

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// tap forwards connections to a server and records their bytes, like an observer on the network.
type tap struct {
	listener net.Listener
	target   string
	group    sync.WaitGroup

	mu    sync.Mutex
	seen  bytes.Buffer
	flips int // pieces from the server still to damage
	conns []net.Conn
}

// newTap listens on a free port of a loopback address. The test certificates are not valid for 127.0.0.2.
func newTap(t testing.TB, host, target string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	testkit.Must(t, err)
	p := &tap{listener: l, target: target}
	p.group.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *tap) addr() string { return p.listener.Addr().String() }

func (p *tap) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.group.Go(func() { p.pass(client, server, true) })
		p.group.Go(func() { p.pass(server, client, false) })
	}
}

// pass copies one direction until either side ends, and then ends both. Errors are the ends of connections.
func (p *tap) pass(to, from net.Conn, damage bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.note(buffer[:n], damage)
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *tap) note(piece []byte, damage bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Write(piece)
	if damage && p.flips > 0 {
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

func (p *tap) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.group.Wait()
}
