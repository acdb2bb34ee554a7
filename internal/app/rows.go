package app

import (
	"database/sql"

	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// tableRows are the statements and the queries of the mapped tables together, for what reads rows and changes them.
type tableRows struct {
	*store.Store
	*query.Reader
}

// rowsOf makes them. waits are those of the state directory, nil where it is not open; may is that of store.New.
func rowsOf(db *sql.DB, tables []*table.Table, waits table.Waits, may func() bool) tableRows {
	return tableRows{store.New(db, tables, waits, may), query.New(db, tables, waits)}
}
