package server

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Querier is a pool, or one connection of it.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Show reads a SHOW or EXPLAIN statement whose columns vary with the version: each row by lower-case column name, NULL as "".
func Show(ctx context.Context, db Querier, statement string, args ...any) ([]map[string]string, error) {
	rows, err := db.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out []map[string]string
	for rows.Next() {
		values, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for k := range values {
			into[k] = &values[k]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := map[string]string{}
		for k, name := range names {
			row[strings.ToLower(name)] = values[k].String
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

// Now is the server's clock. It does not go by the local time, which comes twice when summer time ends.
func Now(ctx context.Context, db Querier) (time.Time, error) {
	var micros int64
	err := db.QueryRowContext(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))").Scan(&micros)
	return time.UnixMicro(micros), err
}

// ClockOffset is the server's clock minus ours, as if the server looked at its clock half-way between question and answer.
func ClockOffset(ctx context.Context, db Querier) (time.Duration, error) {
	asked := time.Now()
	now, err := Now(ctx, db)
	middle := asked.Add(time.Since(asked) / 2)
	return now.Sub(middle), err
}

// Cipher is what encrypts the connection; "" when it is in clear.
func Cipher(ctx context.Context, db Querier) (cipher string, err error) {
	var name string
	err = db.QueryRowContext(ctx, "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher)
	return cipher, err
}

// Replica is one line of the server's list of replicas.
type Replica struct {
	ServerID string // its server_id
	Host     string // the name that it gave itself; "" when it gave none
}

// ListsReplicas reports whether Replicas needs only the privileges of the reader.
func (i Info) ListsReplicas() bool { return i.Flavor == outbox.MySQL }

// Replicas lists the connected replicas, readers of their kind among them. It needs REPLICATION SLAVE on MySQL, and
// REPLICATION MASTER ADMIN on MariaDB.
func (i Info) Replicas(ctx context.Context, db Querier) ([]Replica, error) {
	statement := "SHOW SLAVE HOSTS"
	if i.Flavor == outbox.MySQL && i.AtLeast(8, 0, 22) {
		statement = "SHOW REPLICAS"
	}
	rows, err := Show(ctx, db, statement)
	if err != nil {
		return nil, fmt.Errorf("list the replicas: %w", err)
	}
	var all []Replica
	for _, row := range rows {
		all = append(all, Replica{ServerID: row["server_id"], Host: row["host"]})
	}
	return all, nil
}

// QuoteName writes an identifier for a statement.
func QuoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// quoteText writes a string for a statement.
func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
