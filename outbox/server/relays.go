package server

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

// OtherRelay is another canal-outbox that works on a table of ours: every row of the table is published by both.
type OtherRelay struct {
	Table      string `json:"table"`          // schema.table
	Connection uint64 `json:"connection"`     // its connection, by the number that SHOW PROCESSLIST and KILL use
	From       string `json:"from,omitempty"` // where that comes from, as the server sees it: host:port; "" when our account may not see it
}

// String names the table and the other relay, for logs and messages.
func (o OtherRelay) String() string {
	from := ""
	if o.From != "" {
		from = " from " + o.From
	}
	return fmt.Sprintf("%s (connection %d%s)", o.Table, o.Connection, from)
}

// Presence shows the other relays of a server which tables this one works on, and finds those that work on the same ones.
//
// The list of replicas cannot tell that: it names no tables, and MariaDB shows it to administrators only. So each relay
// holds a named lock (GET_LOCK) for each of its tables, on one connection of its own. Such a lock needs no privilege, changes
// nothing, stops nobody, and ends with the connection. There are two locks for each table: the relay that comes second takes
// the second one, so that the first one can see it too. A third relay sees both, and holds none until one is free.
//
// A Presence owns no goroutine: Look must be called again and again, several times in presenceTimeout, because the server
// ends the connection when it hears nothing for so long. That is how the lock of a machine that is gone goes away. Locks are
// of one server: two relays that reach two servers of one cluster do not see each other.
type Presence struct {
	db     *sql.DB
	tables []string

	mu   sync.Mutex
	conn *sql.Conn // nil: not connected
}

// presenceTimeout is the wait_timeout of a presence's connection, in seconds.
const presenceTimeout = 60

// presenceLocks is how many relays can hold a lock of one table at a time.
const presenceLocks = 2

// NewPresence makes a presence for tables, each written as schema.table in the server's own spelling. It does no I/O.
func NewPresence(cfg Config, tables []string) (*Presence, error) {
	db, err := Open(cfg, nil, Session{MaxConns: 1})
	if err != nil {
		return nil, err
	}
	return &Presence{db: db, tables: tables}, nil
}

// Look takes the locks that are free and that this relay lacks, and returns the other relays of its tables, in the order of
// the tables; nil when there is none. After an error nothing is known; the next call connects anew. It is safe for
// concurrent use.
func (p *Presence) Look(ctx context.Context) ([]OtherRelay, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.connect(ctx); err != nil {
		return nil, fmt.Errorf("look for other relays: %w", err)
	}
	others, err := p.look(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look for other relays: %w", err), p.disconnect())
	}
	return others, nil
}

func (p *Presence) look(ctx context.Context) (others []OtherRelay, err error) {
	var own uint64
	if err := p.conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&own); err != nil {
		return nil, err
	}
	for _, table := range p.tables {
		holders, err := lockHolders(ctx, p.conn, table)
		if err != nil {
			return nil, err
		}
		if err := p.take(ctx, table, own, holders); err != nil {
			return nil, err
		}
		found, err := relays(ctx, p.conn, table, holders, own)
		if err != nil {
			return nil, err
		}
		others = append(others, found...)
	}
	return others, nil
}

// take gets the first free lock of a table, unless one is ours. Who loses the race for it gets another the next time.
func (p *Presence) take(ctx context.Context, table string, own uint64, holders [presenceLocks]uint64) error {
	free := -1
	for k, holder := range holders {
		switch {
		case holder == own:
			return nil
		case holder == 0 && free < 0:
			free = k
		}
	}
	if free < 0 {
		return nil
	}
	var got sql.NullInt64
	return p.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", lockName(table, free)).Scan(&got)
}

func (p *Presence) connect(ctx context.Context) (err error) {
	if p.conn != nil {
		return nil
	}
	if p.conn, err = p.db.Conn(ctx); err != nil {
		p.conn = nil
		return err
	}
	if _, err := p.conn.ExecContext(ctx, "SET SESSION wait_timeout = "+strconv.Itoa(presenceTimeout)); err != nil {
		return errors.Join(err, p.disconnect())
	}
	return nil
}

// disconnect gives up the locks. The connection must end, not go back to the pool with locks in it.
func (p *Presence) disconnect() error {
	conn := p.conn
	p.conn = nil
	if conn == nil {
		return nil
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it returns that error
	return ignoreLost(conn.Close())
}

// Close gives up the locks and ends the connection.
func (p *Presence) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.disconnect(), p.db.Close())
}

// OtherRelays returns the relays that hold a lock of one of the tables, written as schema.table in the server's own
// spelling, in the order of the tables; it takes no lock. The own daemon is among them when it runs.
func OtherRelays(ctx context.Context, db *sql.DB, tables []string) (others []OtherRelay, err error) {
	for _, table := range tables {
		holders, err := lockHolders(ctx, db, table)
		if err != nil {
			return nil, fmt.Errorf("look for other relays: %w", err)
		}
		found, err := relays(ctx, db, table, holders, 0)
		if err != nil {
			return nil, fmt.Errorf("look for other relays: %w", err)
		}
		others = append(others, found...)
	}
	return others, nil
}

// lockHolders returns the connection that holds each of the table's locks; 0 for a free one.
func lockHolders(ctx context.Context, db Querier, table string) (holders [presenceLocks]uint64, err error) {
	var first, second sql.NullInt64
	err = db.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?), IS_USED_LOCK(?)", lockName(table, 0), lockName(table, 1)).Scan(&first, &second)
	return [presenceLocks]uint64{uint64(first.Int64), uint64(second.Int64)}, err
}

// relays makes an entry of each holder that is not own.
func relays(ctx context.Context, db Querier, table string, holders [presenceLocks]uint64, own uint64) (others []OtherRelay, err error) {
	for _, holder := range holders {
		if holder != 0 && holder != own {
			others = append(others, OtherRelay{Table: table, Connection: holder})
		}
	}
	if others == nil {
		return nil, nil
	}
	// Without the PROCESS privilege the server lists the connections of the own account.
	sessions, err := Show(ctx, db, "SHOW PROCESSLIST")
	for k := range others {
		for _, session := range sessions {
			if session["id"] == strconv.FormatUint(others[k].Connection, 10) {
				others[k].From = session["host"]
			}
		}
	}
	return others, err
}

// lockName has a hash in it, because names end at 64 characters and a table's may be longer. Schemas and tables that differ
// in case alone are different tables, and names of locks ignore the case.
func lockName(table string, number int) string {
	hash := sha256.Sum256([]byte(table))
	return fmt.Sprintf("canal-outbox.%s.%d", hex.EncodeToString(hash[:16]), number+1)
}
