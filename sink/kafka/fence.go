package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/canal-outbox/canal-outbox/sink"
)

// fence creates connections that write nothing while may returns false. The library buffers records after the last point where
// this package could check: a process that was stopped for longer than its lease would send them when it continues.
type fence struct {
	tls       func() *tls.Config // nil: none
	may       func() bool        // nil: always
	wire      *wire              // nil: of a reader
	dialLimit time.Duration
}

// dial does what the library does without kgo.Dialer.
func (f fence) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: f.dialLimit}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if f.may != nil {
		conn = fencedConn{conn, f.may}
	}
	if f.tls == nil {
		return f.wired(conn), nil
	}
	settings := f.tls()
	if settings.ServerName == "" {
		if settings.ServerName, _, err = net.SplitHostPort(address); err != nil {
			settings.ServerName = address
		}
	}
	secure := tls.Client(conn, settings)
	ctx, cancel := context.WithTimeout(ctx, f.dialLimit)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error has the reason
		return nil, err
	}
	return f.wired(secure), nil
}

func (f fence) wired(conn net.Conn) net.Conn {
	if f.wire == nil {
		return conn
	}
	return wiredConn{conn, f.wire}
}

// fencedConn is below TLS: nothing lies between the check and the socket.
type fencedConn struct {
	net.Conn
	may func() bool
}

// Write fails like a closed connection, after which the library connects and sends again.
func (c fencedConn) Write(b []byte) (int, error) {
	if !c.may() {
		return 0, fmt.Errorf("%w: %w", sink.ErrMayNot, net.ErrClosed)
	}
	return c.Conn.Write(b)
}
