package canal

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// streamDialer dials the one connection of a stream and can close it from outside. A stream ends when its socket is closed: the
// library's own Close opens a new connection to KILL a connection id, which hangs when the server is away (A55) and ends an
// unrelated connection when the address leads to another server by then (A12).
type streamDialer struct {
	ctx  context.Context
	idle atomic.Int64 // longest wait for bytes, in nanoseconds

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

const (
	dialTimeout = 5 * time.Second
	// seekTimeout is the limit until the first transaction or heartbeat: the server may be busy skipping what the reader has
	// already.
	seekTimeout = 30 * time.Second
)

func newStreamDialer(ctx context.Context) *streamDialer {
	w := &streamDialer{ctx: ctx}
	w.limit(seekTimeout)
	return w
}

// limit sets how long a read may wait: a server that is silent for three heartbeats is dead (A14).
func (w *streamDialer) limit(d time.Duration) { w.idle.Store(int64(d)) }

func (w *streamDialer) dial(_ context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	conn, err := d.DialContext(w.ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	w.conns = append(w.conns, conn)
	return &timedConn{Conn: conn, idle: &w.idle}, nil
}

// close ends every read on the connection. Errors of a socket that is no longer used have no meaning.
func (w *streamDialer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, conn := range w.conns {
		_ = conn.Close()
	}
	w.conns = nil
}

// timedConn sets its read deadline once per fill of the reader's buffer. The library would set it three times per packet, which
// costs more than decoding.
type timedConn struct {
	net.Conn
	idle *atomic.Int64
}

// Read implements net.Conn.
func (c *timedConn) Read(p []byte) (int, error) {
	if err := c.Conn.SetReadDeadline(time.Now().Add(time.Duration(c.idle.Load()))); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}
