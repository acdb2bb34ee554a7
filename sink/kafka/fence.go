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
	tls       *tls.Config
	may       func() bool // nil: always
	wire      *wire
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
		return wiredConn{conn, f.wire}, nil
	}
	settings := f.tls.Clone()
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
	return wiredConn{secure, f.wire}, nil
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
