package lease

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/canal-outbox/canal-outbox/lease/protocol"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Trace is what one row of the lease table says about where its holder has worked. On a server without GTIDs it is the only proof that the
// server is a copy of another one: a relay writes the name of a server into the table only after it has accepted that server.
type Trace struct {
	On       string          // server_uuid of the server that the row was read from; "" on MariaDB
	Source   server.ID       // the server on which the holder has read At
	At       outbox.Position // where it was done with the log
	Released bool            // the holder has ended in order; Age is 0 then
	Age      time.Duration   // since the last renewal, by the database's clock
}

// Traces returns those of all rows that have a position; none where the server has no such table, or shows it to this account no more. A row
// that no relay can have written is skipped: it proves nothing.
func (t *Table) Traces(ctx context.Context) ([]Trace, error) {
	list, err := t.traces(ctx)
	switch server.Code(err) {
	case 1044, 1049, 1142, 1146: // DBACCESS_DENIED, BAD_DB, TABLEACCESS_DENIED, NO_SUCH_TABLE
		return nil, nil
	}
	return list, err
}

func (t *Table) traces(ctx context.Context) (list []Trace, err error) {
	conn, err := t.db.Conn(ctx) // one, so that name and rows are of one server
	if err != nil {
		return nil, t.errorf("read", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var name, on string
	err = conn.QueryRowContext(ctx, "SHOW GLOBAL VARIABLES LIKE 'server_uuid'").Scan(&name, &on)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, t.errorf("read", err)
	}
	rows, err := conn.QueryContext(ctx, "SELECT process, source, log_file, log_offset, gtid_set, expires_at IS NULL, "+
		"COALESCE(TIMESTAMPDIFF(MICROSECOND, expires_at, UTC_TIMESTAMP(3)), 0) FROM "+t.name+" WHERE epoch > ? AND log_file <> ''", counter)
	if err != nil {
		return nil, t.errorf("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		one := Trace{On: on}
		var process string
		var source sql.RawBytes
		var past int64
		if err := rows.Scan(&process, &source, &one.At.File, &one.At.Offset, &one.At.GTIDs, &one.Released, &past); err != nil {
			return nil, t.errorf("read", err)
		}
		if json.Unmarshal(source, &one.Source) != nil {
			continue
		}
		if !one.Released {
			one.Age = time.Duration(past)*time.Microsecond + protocol.LeaseTime(process)
		}
		list = append(list, one)
	}
	if err := rows.Err(); err != nil {
		return nil, t.errorf("read", err)
	}
	return list, nil
}
