package testkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// DSN returns the go-sql-driver data source name of an account, with parseTime on and times in UTC. schema may be empty.
func (d *Database) DSN(user, password, schema string) string {
	return d.config(user, password, schema).FormatDSN()
}

func (d *Database) config(user, password, schema string) *mysql.Config {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", d.Addr()
	cfg.User, cfg.Passwd, cfg.DBName = user, password, schema
	cfg.ParseTime = true
	cfg.Logger = &mysql.NopLogger{} // else every killed connection prints into the test's output
	return cfg
}

// Open returns a pool of connections of that account. It does not connect yet. The caller closes it.
func (d *Database) Open(user, password, schema string) (*sql.DB, error) {
	connector, err := mysql.NewConnector(d.config(user, password, schema))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.Flavor, err)
	}
	return sql.OpenDB(connector), nil
}

// Connect returns a pool of root's connections with that schema, closed at the end of the test.
func (d *Database) Connect(t T, schema string) *sql.DB {
	t.Helper()
	db, err := d.Open("root", "", schema)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Logf("close connections to %s: %v", d.Flavor, err)
		}
	})
	return db
}

// Root returns root's connections without a schema, for set-up statements. Each statement has a connection of its own,
// so use Connect where many statements or a session's state matter. Close of the Database closes it.
func (d *Database) Root() *sql.DB { return d.root }

var schemas atomic.Int64

// CreateSchema makes a schema for this test alone, dropped at its end, and returns its name.
func (d *Database) CreateSchema(t T) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", schemas.Add(1))
	Exec(t, d.root, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		if d.PID() == 0 {
			return // the test has stopped its own server
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := d.root.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name); err != nil {
			t.Logf("drop schema %s: %v", name, err)
		}
	})
	return name
}

// CreateUser makes an account that may connect from anywhere, with the server's default authentication, and gives it each
// grant, written as in "SELECT, UPDATE ON shop.*". SESSION_VARIABLES_ADMIN is left out before MySQL 8.0, where all accounts may what it is for.
func (d *Database) CreateUser(ctx context.Context, name, password string, grants ...string) error {
	statements := []string{fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s'", name, password)}
	for _, grant := range grants {
		if d.Before(8, 0) {
			grant = strings.ReplaceAll(grant, ", SESSION_VARIABLES_ADMIN", "")
			grant = strings.ReplaceAll(grant, "SESSION_VARIABLES_ADMIN", "USAGE")
		}
		statements = append(statements, fmt.Sprintf("GRANT %s TO '%s'@'%%'", grant, name))
	}
	for _, statement := range statements {
		if _, err := d.root.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create account %s: %w", name, err)
		}
	}
	return nil
}

// CreateRelayUser is CreateUser with the rights that a relay needs on tables, written as in "shop.*".
func (d *Database) CreateRelayUser(ctx context.Context, name, password, tables string) error {
	mark := map[Flavor]string{MySQL: "SESSION_VARIABLES_ADMIN ON *.*", MariaDB: "BINLOG ADMIN ON *.*"}[d.Flavor]
	return d.CreateUser(ctx, name, password, "REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT, UPDATE ON "+tables, mark)
}

// Processlist names the table of the server's sessions, with the columns ID, USER, HOST, COMMAND, STATE and INFO. The one in MySQL's
// information_schema fails while any session runs a statement with characters beyond the basic plane (error 3854).
func (d *Database) Processlist() string {
	if d.Flavor == MySQL && !d.Before(8, 0) {
		return "performance_schema.processlist"
	}
	return "information_schema.processlist"
}

// KillSessions ends the sessions that a condition on Processlist selects, and returns how many there were.
func (d *Database) KillSessions(ctx context.Context, condition string) (killed int, err error) {
	ids, err := d.sessions(ctx, condition)
	if errors.Is(err, mysql.ErrInvalidConn) { // another test has killed the session that asks
		ids, err = d.sessions(ctx, condition)
	}
	for _, id := range ids {
		// One that has gone meanwhile needs no killing.
		if _, err := d.root.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err == nil {
			killed++
		}
	}
	return killed, err
}

// sessions lists the ids of sessions.
func (d *Database) sessions(ctx context.Context, condition string) (ids []int64, err error) {
	rows, err := d.root.QueryContext(ctx, "SELECT ID FROM "+d.Processlist()+" WHERE "+condition)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return ids, fmt.Errorf("list sessions: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// ResetStatement removes all binary logs and begins the server's history again.
func (d *Database) ResetStatement() string {
	if d.Flavor == MariaDB || d.Before(8, 2) {
		return "RESET MASTER"
	}
	return "RESET BINARY LOGS AND GTIDS"
}

// purgeDeadline is how long Purge tries: MariaDB needs a short time after the switch until the old log is not needed for its
// own recovery, and both keep a log that a connected reader is in.
const purgeDeadline = startDeadline

// Purge begins a new binary log and removes all older ones. A reader whose position was in one of them has lost it. It
// fails when a connected reader keeps a log from being removed.
func (d *Database) Purge(ctx context.Context) error {
	if _, err := d.root.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
		return fmt.Errorf("begin a new binary log: %w", err)
	}
	for end := time.Now().Add(purgeDeadline); ; time.Sleep(poll) {
		logs, err := d.BinaryLogs(ctx)
		if err != nil {
			return err
		}
		if len(logs) == 1 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("purge binary logs: %v are still there, a reader is in one of them", logs)
		}
		if _, err := d.root.ExecContext(ctx, "PURGE BINARY LOGS TO '"+logs[len(logs)-1]+"'"); err != nil {
			return fmt.Errorf("purge binary logs: %w", err)
		}
	}
}

// AwaitLogBegun waits until MariaDB has written into its newest binary log what it writes by itself, some time after the file began: that no
// older one is needed any more. Until then the end of the log moves without a client that writes. MySQL has no such event.
func (d *Database) AwaitLogBegun(ctx context.Context) error {
	if d.Flavor == MySQL {
		return nil
	}
	logs, err := d.BinaryLogs(ctx)
	if err != nil {
		return err
	}
	newest := logs[len(logs)-1]
	for end := time.Now().Add(purgeDeadline); ; time.Sleep(poll) {
		begun, err := d.begun(ctx, newest)
		switch {
		case err != nil:
			return fmt.Errorf("read the events of %s: %w", newest, err)
		case begun:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s has no Binlog_checkpoint that names it", newest)
		}
	}
}

func (d *Database) begun(ctx context.Context, file string) (begun bool, err error) {
	rows, err := d.root.QueryContext(ctx, "SHOW BINLOG EVENTS IN '"+file+"'")
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var log, kind, info string
		var at, server, end uint64
		if err := rows.Scan(&log, &at, &kind, &server, &end, &info); err != nil {
			return false, err
		}
		begun = begun || kind == "Binlog_checkpoint" && info == file
	}
	return begun, rows.Err()
}

// BinaryLogs returns the names of the binary logs, oldest first; there is always one.
func (d *Database) BinaryLogs(ctx context.Context) ([]string, error) {
	rows, err := d.root.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return nil, fmt.Errorf("list binary logs: %w", err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, fmt.Errorf("list binary logs: %w", err)
	}
	var names []string
	for rows.Next() {
		// MySQL has a third column, Encrypted.
		row := make([]any, len(columns))
		var name string
		row[0] = &name
		for i := 1; i < len(row); i++ {
			row[i] = new(sql.RawBytes)
		}
		if err := rows.Scan(row...); err != nil {
			return nil, fmt.Errorf("list binary logs: %w", err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list binary logs: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("list binary logs: the server has none")
	}
	return names, nil
}
