package testkit

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// Proxy is a TCP proxy on 127.0.0.1 that breaks what passes through it on command. All methods may be called at any time
// from any goroutine; what they switch on also holds for connections that exist already, SetTarget excepted.
type Proxy struct {
	address string
	hooks   ProxyHooks
	ports   *ports
	work    sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // hole switched, or a link dropped
	target   string
	listener net.Listener // nil while refusing
	links    map[*link]struct{}
	hole     bool
	latency  time.Duration
	cut      *cutPoint
	closed   bool
}

// cutPoint is the request of CutAfter: the number of further bytes, then done.
type cutPoint struct {
	left int64
	done chan struct{}
}

// link is one connection through the proxy.
type link struct {
	client, upstream net.Conn
	end              chan struct{} // closed by drop
	dropped          bool          // guarded by Proxy.mu
}

// NewProxy is StartProxy for a test, closed at its end.
func NewProxy(t T, target string) *Proxy {
	t.Helper()
	return NewProxyWith(t, "127.0.0.1", target, ProxyHooks{})
}

// StartProxy starts a proxy to target (host:port), which need not answer yet. The caller closes it.
func StartProxy(target string) (*Proxy, error) { return startProxy("127.0.0.1", target, ProxyHooks{}) }

// ProxyHooks see what passes through a proxy. They are called from several goroutines, before anything is forwarded.
type ProxyHooks struct {
	// Admit is called with each new connection, to which it may write; the connection is closed when Admit returns false.
	Admit func(net.Conn) bool
	// Pass is called with each piece, whose bytes it may change.
	Pass func(piece []byte, fromTarget bool)
}

// NewProxyWith is NewProxy with hooks, on another loopback address such as 127.0.0.2.
func NewProxyWith(t T, host, target string, hooks ProxyHooks) *Proxy {
	t.Helper()
	p, err := startProxy(host, target, hooks)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(p.Close)
	return p
}

func startProxy(host, target string, hooks ProxyHooks) (*Proxy, error) {
	ports, err := reservePorts(0)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(host, strconv.Itoa(ports.base))
	p := &Proxy{address: address, hooks: hooks, ports: ports, target: target, links: map[*link]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	if err := p.Refuse(false); err != nil {
		ports.release()
		return nil, err
	}
	return p, nil
}

// Addr returns host:port for clients; it never changes.
func (p *Proxy) Addr() string { return p.address }

// SetTarget sends new connections to another server. Existing ones stay where they are until Cut.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Connections returns how many connections are open through the proxy.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Cut resets all connections (RST on both sides); new ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		p.drop(l, true)
	}
}

// CutAfter cuts all connections when n more bytes have come from the target, counted over all connections: the client gets
// these n bytes, then the end of the stream. The channel closes when that has happened. A second call replaces the first.
func (p *Proxy) CutAfter(n int64) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = &cutPoint{left: n, done: make(chan struct{})}
	return p.cut.done
}

// Hole makes the network a black hole: connections stay open, are even accepted, and nothing passes in either direction,
// not even the end of a connection. Switching it off delivers what was held back, as TCP does after a partition heals.
func (p *Proxy) Hole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = on
	p.changed.Broadcast()
}

// Latency delays every chunk of up to 64 KiB by d in each direction (and so bounds the throughput).
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// Refuse closes the port (new connections get "connection refused") or opens it again. Existing connections continue.
func (p *Proxy) Refuse(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed || on == (p.listener == nil):
		return nil
	case on:
		err := p.listener.Close()
		p.listener = nil
		return err
	}
	listener, err := Listen(p.Addr())
	if err != nil {
		return fmt.Errorf("open the proxy's port: %w", err)
	}
	p.listener = listener
	p.work.Go(func() { p.accept(listener) })
	return nil
}

// Close resets all connections, closes the port and waits for the proxy's goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true // from here on a new link is dropped at once
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.Cut()
	p.work.Wait()
	p.ports.release()
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed by Refuse or Close
		}
		p.work.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if p.hooks.Admit != nil && !p.hooks.Admit(client) {
		client.Close()
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	upstream, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, upstream: upstream, end: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.closed {
		p.drop(l, true)
	}
	p.mu.Unlock()
	p.work.Go(func() { p.pump(l, client, upstream, false) })
	p.pump(l, upstream, client, true)
}

// pump copies one direction until it ends, then drops the link: the protocols at hand do not use half-closed connections.
func (p *Proxy) pump(l *link, from, to net.Conn, fromUpstream bool) {
	buf := make([]byte, 64<<10)
	for {
		n, readErr := from.Read(buf)
		if p.hooks.Pass != nil && n > 0 {
			p.hooks.Pass(buf[:n], fromUpstream)
		}
		n, done := p.pass(l, n, fromUpstream)
		_, writeErr := to.Write(buf[:n])
		if done != nil || readErr != nil || writeErr != nil {
			p.mu.Lock()
			p.drop(l, isReset(readErr))
			if done != nil {
				for other := range p.links {
					p.drop(other, true)
				}
				close(done)
			}
			p.mu.Unlock()
			return
		}
	}
}

// pass waits until a chunk of n bytes may pass and returns how much of it, and, when the cut point is in it, the channel
// to close after the cut.
func (p *Proxy) pass(l *link, n int, fromUpstream bool) (int, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.latency; d > 0 && n > 0 {
		p.mu.Unlock()
		select {
		case <-time.After(d):
		case <-l.end:
		}
		p.mu.Lock()
	}
	for p.hole && !l.dropped {
		p.changed.Wait()
	}
	cut := p.cut
	if !fromUpstream || cut == nil || l.dropped {
		return n, nil
	}
	if cut.left > int64(n) {
		cut.left -= int64(n)
		return n, nil
	}
	p.cut = nil
	return int(cut.left), cut.done
}

// drop ends a link once; the caller holds mu.
func (p *Proxy) drop(l *link, hard bool) {
	if l.dropped {
		return
	}
	l.dropped = true
	delete(p.links, l)
	close(l.end)
	if hard {
		reset(l.client)
		reset(l.upstream)
	} else {
		l.client.Close()
		l.upstream.Close()
	}
	p.changed.Broadcast()
}

// reset closes with RST: linger 0 throws away what was not sent and skips the orderly end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only on a connection that is closed already
	}
	conn.Close()
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !errors.Is(err, net.ErrClosed)
}
