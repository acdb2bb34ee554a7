package server

import (
	"context"
	"database/sql/driver"
	"fmt"
	"net"

	"github.com/go-sql-driver/mysql"
)

// socketKey is the context key under which dial receives the socket that the driver opens.
type socketKey struct{}

// dial connects. The driver reads beyond the end of a greeting that was damaged or cut on the way, which no encryption
// covers yet: its panic becomes a lost connection (A51). The driver's own goroutine for that connection is out of reach
// then and stays.
func (c *connector) dial(ctx context.Context) (conn driver.Conn, err error) {
	var socket net.Conn
	defer func() {
		if cause := recover(); cause != nil {
			conn, err = nil, fmt.Errorf("%w: what the server answered cannot be read: %v", mysql.ErrInvalidConn, cause)
			if socket != nil {
				_ = socket.Close() // this is its only owner; the error does not matter
			}
		}
	}()
	return c.Connector.Connect(context.WithValue(ctx, socketKey{}, &socket))
}

// openSocket is the driver's dial function.
func openSocket(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if socket, ok := ctx.Value(socketKey{}).(*net.Conn); ok {
		*socket = conn
	}
	return conn, err
}
