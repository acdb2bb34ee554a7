package app

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
)

// brokenConn is a connection that was reset while it lay idle in its pool.
type brokenConn struct{ driver.Conn }

func (brokenConn) Close() error { return driver.ErrBadConn }

type brokenConnector struct{ driver.Connector }

func (brokenConnector) Connect(context.Context) (driver.Conn, error) { return brokenConn{}, nil }

// A connection that broke before a stop must not turn the stop into a failure.
func TestCloseWithABrokenConnection(t *testing.T) {
	db := sql.OpenDB(brokenConnector{})
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil { // back into the pool
		t.Fatal(err)
	}
	in := &instance{}
	in.onClose(closing(db))
	if err := in.close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
