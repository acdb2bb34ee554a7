package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/canal-outbox/canal-outbox/sink"
)

// dialTimeout is the client library's own.
const dialTimeout = 10 * time.Second

// fence makes connections that write nothing while may is false. The library holds records in its own buffers, behind the last point
// where this package could ask: a process that was stopped for longer than its lease would send them when it wakes.
type fence struct {
	tls  *tls.Config
	may  func() bool // nil: always
	wire *wire
}

// dial does what the library does without kgo.Dialer.
func (f fence) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if f.may != nil {
		conn = fencedConn{conn, f.may}
	}
	if f.tls == nil {
		return wiredConn{conn, f.wire}, nil
	}
	settings := f.tls.Clone()
	if settings.ServerName == "" {
		if settings.ServerName, _, err = net.SplitHostPort(address); err != nil {
			settings.ServerName = address
		}
	}
	secure := tls.Client(conn, settings)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error says why
		return nil, err
	}
	return wiredConn{secure, f.wire}, nil
}

// fencedConn is below TLS: nothing lies between the question and the socket.
type fencedConn struct {
	net.Conn
	may func() bool
}

// Write refuses like a connection that was closed, after which the library connects again and sends again.
func (c fencedConn) Write(b []byte) (int, error) {
	if !c.may() {
		return 0, fmt.Errorf("%w: %w", sink.ErrMayNot, net.ErrClosed)
	}
	return c.Conn.Write(b)
}
