package lease

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Check reports whether the lease table exists and the account may use it, without a change. A finding other than OK is why a
// relay runs without a lease; its Fix is the statement that helps. ddl creates the table. An error means that the database did
// not answer.
func Check(ctx context.Context, db *sql.DB, name, ddl string) (server.Finding, error) {
	found := server.Finding{Severity: server.OK, Subject: "lease", What: "one of several relays can be active: the table " + name + " is there"}
	table := quoted(name)
	for _, statement := range []string{
		"INSERT INTO " + table + " (" + columns + ") SELECT " + columns + " FROM " + table + " WHERE FALSE",
		"UPDATE " + table + " SET expires_at = NULL WHERE FALSE",
		"DELETE FROM " + table + " WHERE FALSE",
	} {
		_, err := db.ExecContext(ctx, statement)
		if err == nil {
			continue
		}
		found.Severity = server.Warning
		switch server.Code(err) {
		case 1146, 1049: // NO_SUCH_TABLE, BAD_DB_ERROR
			found.What, found.Fix = "there is no table "+name, strings.TrimSpace(ddl)
		case 1142, 1143, 1044: // table, column, database
			found.What = "the account may not use the table " + name
			privileges, err := grant(ctx, db, table)
			if err != nil {
				return found, err
			}
			found.Fix = strings.TrimSpace(ddl) + "\n" + privileges // an account that may not use it cannot see whether it exists
		case 1054: // BAD_FIELD_ERROR
			found.What, found.Fix = "the table "+name+" is not a lease table", "drop it, or set lease.table to another name; then\n"+strings.TrimSpace(ddl)
		default:
			return found, fmt.Errorf("check the lease table %s: %w", name, err)
		}
		if code := server.Code(err); code != 1054 {
			found.SQL = found.Fix
		}
		found.What += ": no other relay can stand by, and two relays of the same tables would both publish"
		return found, nil
	}
	return found, nil
}

// CheckColumns completes what Check has found for a table that an older release has made: a relay works without the column, and a relay that
// takes over sends rows again that it would name.
func CheckColumns(ctx context.Context, db *sql.DB, name string, found server.Finding) (server.Finding, error) {
	_, err := db.ExecContext(ctx, "UPDATE "+quoted(name)+" SET "+SentColumn+" = NULL WHERE FALSE")
	switch {
	case err == nil:
		return found, nil
	case server.Code(err) != 1054: // BAD_FIELD_ERROR
		return found, fmt.Errorf("check the columns of the lease table %s: %w", name, err)
	}
	found.Severity = server.Warning
	found.What = "the table " + name + " lacks the column " + SentColumn + ": a relay that takes over sends published rows again that their table does not show as SENT"
	found.Fix = AddSentColumn(quoted(name))
	found.SQL = found.Fix
	return found, nil
}

// SentColumn is a column that lease tables of older releases lack.
const SentColumn = "sent_rows"

// AddSentColumn is the statement that adds it to a table, whose name is quoted where it has to be.
func AddSentColumn(table string) string {
	return "ALTER TABLE " + table + " ADD COLUMN " + SentColumn + " MEDIUMTEXT NULL"
}

// grant returns the statement that lets the account use the table.
func grant(ctx context.Context, db *sql.DB, table string) (string, error) {
	var account string
	if err := db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&account); err != nil {
		return "", err
	}
	return Privileges(table).Grant(account), nil
}

// Privileges are those that a relay needs on the lease table, whose name is quoted where it has to be.
func Privileges(table string) server.Probe {
	return server.Probe{Privileges: "SELECT, INSERT, UPDATE, DELETE", On: table}
}
