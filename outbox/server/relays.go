package server

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// OtherRelay is another canal-outbox that works on a table of ours: every row of the table is published by both.
type OtherRelay struct {
	Table      string `json:"table"`            // schema.table
	Connection uint64 `json:"connection"`       // its connection, by the number that SHOW PROCESSLIST and KILL use
	From       string `json:"from,omitempty"`   // where that comes from, as the server sees it: host:port; "" when our account may not see it
	Leased     bool   `json:"leased,omitempty"` // it publishes only while it holds a lease
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
// The list of replicas cannot show that: it names no tables, and MariaDB shows it to administrators only. So each relay holds a
// named lock (GET_LOCK) for each of its tables, on one connection of its own. Such a lock needs no privilege, changes nothing,
// blocks no other session, and ends with the connection. There are two locks for each table: the relay that comes second takes
// the second lock, so that the first relay can see it too. A third relay sees both, and holds none until one is free. Relays
// with a lease have two locks of their own. Between such relays the lease decides, and the lock of a relay that lost the lease
// may stay for a while (its process is suspended, or its network is gone). So a relay with a lease counts another one only when
// the other lock still exists after the server would have ended the connection of a silent relay. Those two do not use the same
// lease table.
//
// A Presence owns no goroutine: Look must be called several times in each presenceTimeout, because the server ends a connection
// that is silent for that long. That is how the lock of a machine that is gone ends. Locks are of one server: two relays that
// reach two servers of one cluster do not see each other.
type Presence struct {
	db     *sql.DB
	tables []string
	leased bool

	mu     sync.Mutex
	conn   *sql.Conn            // nil: not connected
	own    uint64               // the number of the connection
	former []uint64             // of connections that were lost: the server may not have noticed yet, and lists their locks
	seen   map[uint64]time.Time // leased: since when the locks of others with a lease are there, by connection
}

// presenceTimeout is the wait_timeout of a presence's connection, in seconds.
const presenceTimeout = 60

// presenceSlack is how much later, in seconds, the end of a silent connection is seen at most.
const presenceSlack = 30

// presenceLocks is how many relays can hold a lock of one table at a time: half of them without a lease, half with one.
const presenceLocks = 4

// ownLocks are the locks of a table that a relay may take.
func ownLocks(leased bool) (from, to int) {
	if leased {
		return presenceLocks / 2, presenceLocks
	}
	return 0, presenceLocks / 2
}

// NewPresence makes a presence for tables, each written as schema.table in the server's own spelling. leased says that a lease
// keeps this relay from publishing what another relay with the lease publishes. It does no I/O.
func NewPresence(cfg Config, tables []string, leased bool) (*Presence, error) {
	db, err := Open(cfg, nil, Session{MaxConns: 1})
	if err != nil {
		return nil, err
	}
	return &Presence{db: db, tables: tables, leased: leased, seen: map[uint64]time.Time{}}, nil
}

// Look takes the locks that are free and that this relay lacks, and returns the other relays of its tables, in the order of the
// tables; nil when there is none. It costs one statement while the relay is alone. After an error the other relays are unknown;
// the next call connects again. It is safe for concurrent use.
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
	locks, err := readLocks(ctx, p.conn, p.tables)
	if err != nil {
		return nil, err
	}
	p.own = locks.asker
	for k, table := range p.tables {
		if err := p.take(ctx, table, locks.holders[k]); err != nil {
			return nil, err
		}
	}
	p.former = slices.DeleteFunc(p.former, func(id uint64) bool {
		return !slices.ContainsFunc(locks.holders, func(h tableLocks) bool { return slices.Contains(h[:], id) })
	})
	all, err := relays(ctx, p.conn, p.tables, locks, p.former)
	return p.counting(all, time.Now()), err
}

// counting leaves those out that the lease keeps from publishing.
func (p *Presence) counting(all []OtherRelay, now time.Time) []OtherRelay {
	if !p.leased {
		return all
	}
	here := map[uint64]time.Time{}
	all = slices.DeleteFunc(all, func(o OtherRelay) bool {
		if !o.Leased {
			return false
		}
		since, known := p.seen[o.Connection]
		if !known {
			since = now
		}
		here[o.Connection] = since
		return now.Sub(since) <= (presenceTimeout+presenceSlack)*time.Second
	})
	p.seen = here
	if len(all) == 0 {
		return nil
	}
	return all
}

// take gets the first free lock of a table, unless one is ours. A relay that loses the race for it gets another one the next time.
func (p *Presence) take(ctx context.Context, table string, holders tableLocks) error {
	free := -1
	from, to := ownLocks(p.leased)
	for k := from; k < to; k++ {
		switch holder := holders[k]; {
		case holder == p.own:
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

// disconnect releases the locks. The connection must end, not go back to the pool with locks in it.
func (p *Presence) disconnect() error {
	conn := p.conn
	p.conn = nil
	if conn == nil {
		return nil
	}
	if p.own != 0 {
		p.own, p.former = 0, append(p.former, p.own)
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it returns that error
	return ignoreLost(conn.Close())
}

// Close releases the locks and ends the connection.
func (p *Presence) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.disconnect(), p.db.Close())
}

// OtherRelays returns the relays that hold a lock of one of the tables, written as schema.table in the server's own
// spelling, in the order of the tables; it takes no lock. The relay of this configuration is among them when it runs.
func OtherRelays(ctx context.Context, db *sql.DB, tables []string) (others []OtherRelay, err error) {
	locks, err := readLocks(ctx, db, tables)
	if err == nil {
		others, err = relays(ctx, db, tables, locks, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("look for other relays: %w", err)
	}
	return others, nil
}

// tableLocks is the connection that holds each of a table's locks; 0 for a free one.
type tableLocks [presenceLocks]uint64

type locks struct {
	asker   uint64       // the connection that asked
	holders []tableLocks // by table
}

// readLocks asks for the locks of many tables in few statements.
func readLocks(ctx context.Context, db Querier, tables []string) (all locks, err error) {
	const atOnce = 500
	for some := range slices.Chunk(tables, atOnce) {
		query, values := "SELECT CONNECTION_ID()", make([]sql.NullInt64, 1+presenceLocks*len(some))
		for _, table := range some {
			for n := range presenceLocks {
				query += ", IS_USED_LOCK('" + lockName(table, n) + "')"
			}
		}
		into := make([]any, len(values))
		for k := range values {
			into[k] = &values[k]
		}
		if err := db.QueryRowContext(ctx, query).Scan(into...); err != nil {
			return locks{}, err
		}
		all.asker = uint64(values[0].Int64)
		for of := range slices.Chunk(values[1:], presenceLocks) {
			var holders tableLocks
			for n := range holders {
				holders[n] = uint64(of[n].Int64)
			}
			all.holders = append(all.holders, holders)
		}
	}
	return all, nil
}

// relays makes an entry of each holder that is neither the asking connection nor one of ours.
func relays(ctx context.Context, db Querier, tables []string, locks locks, ours []uint64) (others []OtherRelay, err error) {
	for k, table := range tables {
		for n, holder := range locks.holders[k] {
			if holder != 0 && holder != locks.asker && !slices.Contains(ours, holder) {
				others = append(others, OtherRelay{Table: table, Connection: holder, Leased: n >= presenceLocks/2})
			}
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
