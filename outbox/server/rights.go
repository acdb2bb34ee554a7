package server

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A session keeps the privileges of its login: it never sees privileges that are granted later, or granted again to an account
// that was recreated. So a pool does not use a session again after the server has refused it something, and uses none for long.

// sessionLife is about how long a session is used. It must be short enough for privileges whose lack shows in no answer
// (to narrow our own updates in the binlog), and long enough for the login to cost nothing.
const sessionLife = 5 * time.Minute

// jittered keeps the pools of several relays from logging in at the same time.
func jittered(life time.Duration) time.Duration { return life - rand.N(life/5) }

// refusal reports whether the server may give another answer after a new login.
func refusal(err error) bool {
	switch Code(err) {
	case 1044, 1045, 1142, 1143, 1227: // database, account, table, column, global privilege
		return true
	}
	return false
}

// logins counts the refusals of a pool. A session that is older than the last one must not be used again.
type logins struct{ refusals atomic.Uint64 }

// driverConn is what database/sql uses of the driver's connection.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// session is a connection of a pool, which ends when the pool has met a refusal since its login, or when its server is not the right one any more.
type session struct {
	driverConn
	pool  *logins
	born  uint64      // the pool's refusals before the login
	still func() bool // its server is the right one
}

// session wraps a connection that began when the pool had counted born refusals.
func (l *logins) session(conn driver.Conn, born uint64, still func() bool) (driver.Conn, error) {
	full, ok := conn.(driverConn)
	if !ok {
		return nil, fmt.Errorf("the driver's connection (%T) lacks methods that a pool needs", conn)
	}
	return &session{driverConn: full, pool: l, born: born, still: still}, nil
}

func (s *session) noted(err error) error {
	if refusal(err) {
		s.pool.refusals.Add(1)
	}
	return err
}

func (s *session) outdated() bool { return s.pool.refusals.Load() != s.born || !s.still() }

// ExecContext implements driver.ExecerContext.
func (s *session) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := s.driverConn.ExecContext(ctx, query, args)
	return result, s.noted(err)
}

// QueryContext implements driver.QueryerContext.
func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.driverConn.QueryContext(ctx, query, args)
	return rows, s.noted(err)
}

// PrepareContext implements driver.ConnPrepareContext.
func (s *session) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	statement, err := s.driverConn.PrepareContext(ctx, query)
	return statement, s.noted(err)
}

// ResetSession implements driver.SessionResetter: database/sql asks before it uses an idle connection.
func (s *session) ResetSession(ctx context.Context) error {
	if s.outdated() {
		return driver.ErrBadConn
	}
	return s.driverConn.ResetSession(ctx)
}

// IsValid implements driver.Validator: database/sql asks before it keeps a connection.
func (s *session) IsValid() bool { return !s.outdated() && s.driverConn.IsValid() }
