package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Session says what the connections of a pool are for.
type Session struct {
	// Writes asks for what keeps our own updates small and off our own stream: binlog_row_image=MINIMAL, and on MariaDB
	// skip_replication. Both are done without where the account may not set them; Info of this pool shows what was got.
	// A read-only server is refused.
	Writes bool
	// Replicated leaves skip_replication alone: what is written must be there after a failover, whatever a replica filters.
	Replicated bool
	// Still is asked before each use of a connection whether its server is still the right one: after a failover behind one address a connection to the
	// old server may stay open. nil: it is.
	Still func(ID) bool
	// MaxConns bounds the pool; 0 means 4. As many are kept open when idle.
	MaxConns int
}

const idleTime = 5 * time.Minute

// Open returns a pool. Nothing is dialled before its first use. Each new connection gets the session settings (READ
// COMMITTED, short lock waits, strict SQL mode, utf8mb4; an UPDATE's count is of matched rows), then its server is shown
// to guard; an error of guard comes back wrapped in *RefusedError from whatever wanted the connection. A nil guard
// accepts every server.
//
// A connection is used for some minutes. It is not used again after the server has refused a statement of this pool for lack of
// a privilege: the next statement logs in again, because a session never sees privileges that are granted after its login. Nor is it used when
// Session.Still says that its server is not the right one any more.
//
// The session's time zone stays the server's default: columns that the server sets by ON UPDATE CURRENT_TIMESTAMP would
// otherwise change their zone under our updates.
func Open(cfg Config, guard func(context.Context, ID) error, session Session) (*sql.DB, error) {
	settings := cfg.driver()
	if err := settings.Apply(mysql.BeforeConnect(cfg.secrets)); err != nil {
		return nil, fmt.Errorf("connection settings for %s: %w", cfg.Address, err)
	}
	base, err := mysql.NewConnector(settings)
	if err != nil {
		return nil, fmt.Errorf("connection settings for %s: %w", cfg.Address, err)
	}
	db := sql.OpenDB(&connector{Connector: base, config: cfg, address: cfg.Address, guard: guard, session: session, logins: &logins{}})
	conns := session.MaxConns
	if conns == 0 {
		conns = 4
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(idleTime)
	db.SetConnMaxLifetime(jittered(sessionLife))
	return db, nil
}

func (c Config) driver() *mysql.Config {
	d := mysql.NewConfig()
	d.Net, d.Addr, d.User, d.AllowFallbackToPlaintext = c.Network(), c.Address, c.User, c.TLSOptional
	d.Timeout, d.ReadTimeout, d.WriteTimeout = c.DialTimeout, c.IOTimeout, c.IOTimeout
	if c.DialTimeout == 0 {
		d.Timeout = defaultDialTimeout
	}
	if c.IOTimeout == 0 {
		d.ReadTimeout, d.WriteTimeout = defaultIOTimeout, defaultIOTimeout
	}
	d.ClientFoundRows = true
	d.InterpolateParams = true
	d.RejectReadOnly = true // the primary became a replica: leave the connection, the next one resolves the address again
	d.Logger = &mysql.NopLogger{}
	d.DialFunc = openSocket
	return d
}

// secrets puts the present password and certificates into the driver's configuration of one connection. That is a copy: a connection
// that finds a server without TLS, where that is allowed, switches TLS off in it.
func (c Config) secrets(_ context.Context, d *mysql.Config) error {
	d.Passwd, d.TLS = c.Password.Get(), c.TLS.Config()
	if c.TLS != nil {
		d.Logger = alerts{c}
	}
	return nil
}

// alerts is the log of one connection of the driver, which says there why a connection broke, and returns only that it did.
type alerts struct{ config Config }

// Print implements mysql.Logger.
func (a alerts) Print(values ...any) {
	for _, v := range values {
		if err, is := v.(error); is && PeerRefused(err) {
			a.config.LoggedIn(err, 0)
		}
	}
}

// connector prepares and checks every connection before database/sql sees it.
type connector struct {
	driver.Connector
	config  Config
	address string
	guard   func(context.Context, ID) error
	session Session
	logins  *logins
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	refusals := c.logins.refusals.Load() // before the login, so that a refusal in the meantime ends this one too
	conn, err := c.dial(ctx)
	c.config.LoggedIn(err, Code(err))
	if err != nil {
		return nil, c.connectError(err)
	}
	id, err := c.prepare(ctx, conn)
	if err != nil {
		return nil, errors.Join(err, ignoreLost(conn.Close()))
	}
	still := func() bool { return c.session.Still == nil || c.session.Still(id) }
	return c.logins.session(conn, refusals, still)
}

// connectError names the server. driver.ErrBadConn would make database/sql try again in silence and then lose the cause.
func (c *connector) connectError(err error) error {
	if errors.Is(err, driver.ErrBadConn) {
		err = mysql.ErrInvalidConn
	}
	return fmt.Errorf("connect to %s: %w", c.address, err)
}

func ignoreLost(err error) error {
	if Classify(err) == Lost {
		return nil
	}
	return err
}

const settings = "SET NAMES utf8mb4, SESSION autocommit=1, SESSION sql_mode='STRICT_TRANS_TABLES,NO_AUTO_VALUE_ON_ZERO', " +
	"SESSION innodb_lock_wait_timeout=1, SESSION lock_wait_timeout=2"

func (c *connector) prepare(ctx context.Context, conn driver.Conn) (ID, error) {
	for _, statement := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", settings} {
		if err := execute(ctx, conn, statement); err != nil {
			return ID{}, c.connectError(fmt.Errorf("session settings: %w", err))
		}
	}
	vars, err := identityVariables(ctx, conn)
	if err != nil {
		return ID{}, c.connectError(fmt.Errorf("read the server's identity: %w", err))
	}
	id, err := vars.id()
	if err != nil {
		return ID{}, c.connectError(err)
	}
	if c.guard != nil {
		if err := c.guard(ctx, id); err != nil {
			return ID{}, &RefusedError{Address: c.address, ID: id, Err: err}
		}
	}
	if c.session.Writes && vars.readOnly() {
		return ID{}, &ReadOnlyError{Address: c.address, Reader: vars.reader()}
	}
	return id, c.tune(ctx, conn, id.Flavor)
}

// whole undoes defaults of a server that refuse a statement (an UPDATE of many rows, a read of large tables), end a result before its last row, or begin
// a transaction behind a COMMIT.
const whole = "SET SESSION sql_safe_updates=0, SESSION sql_big_selects=1, SESSION sql_select_limit=18446744073709551615, SESSION completion_type='NO_CHAIN'"

// tune sets what a server may not know, or the account may not be allowed.
func (c *connector) tune(ctx context.Context, conn driver.Conn, flavor outbox.Flavor) error {
	statements := []string{whole}
	if flavor == outbox.MariaDB {
		// A long IN list would become a subquery, and the rows would no longer be found by the primary key.
		statements = append(statements, "SET SESSION in_predicate_conversion_threshold=0")
	} else {
		// The estimate of a table's rows would be as old as a day.
		statements = append(statements, "SET SESSION information_schema_stats_expiry=0")
	}
	if c.session.Writes {
		statements = append(statements, "SET SESSION binlog_row_image='MINIMAL'")
	}
	if c.session.Writes && !c.session.Replicated && flavor == outbox.MariaDB {
		statements = append(statements, "SET SESSION skip_replication=1")
	}
	for _, statement := range statements {
		err := execute(ctx, conn, statement)
		var answer *mysql.MySQLError
		if err != nil && !errors.As(err, &answer) {
			return c.connectError(err)
		}
	}
	return nil
}

func execute(ctx context.Context, conn driver.Conn, statement string) error {
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		return fmt.Errorf("the driver's connection (%T) runs no statements", conn)
	}
	_, err := execer.ExecContext(ctx, statement, nil)
	return err
}

// RefusedError says that the identity guard did not accept a server.
type RefusedError struct {
	Address string
	ID      ID
	Err     error // the guard's
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("server at %s (%s): %v", e.Address, e.ID, e.Err)
}

// Unwrap returns the guard's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// ReadOnlyError says that a pool meant for writing met a server that takes no writes.
type ReadOnlyError struct {
	Address string
	Reader  bool // it is a reader of an Aurora cluster
}

// Error implements error.
func (e *ReadOnlyError) Error() string {
	if e.Reader {
		return fmt.Sprintf("server at %s is a reader of an Aurora cluster, which takes no writes and has no binlog: %s; it is tried again, because "+
			"after a failover the name may lead to the old writer for some seconds", e.Address, Aurora.Cure(Primary))
	}
	return fmt.Sprintf("server at %s is read-only (a replica, or in maintenance): point source.address at the primary, "+
		"or end the maintenance; it is tried again", e.Address)
}
