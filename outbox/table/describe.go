package table

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// description is what the server says about one table and the zone of its DATETIME columns. It is a record: one field for each
// answer.
type description struct {
	mariaDB      bool
	waits        bool // the server has no SKIP LOCKED
	found        bool
	absent       bool   // not found, and the server says that it is not hidden from the account
	account      string // of the session, when the table was not found
	schema, name string // as the server writes them
	view         bool
	engine       string
	columns      []ColumnType
	indexes      []Index
	zone         *time.Location // the server's default
	zoneKnown    bool           // the server can convert to the mapping's zone; true when that has none
	definitions  map[string]definition
	alike        [][2]string // words of the mapping that are equal in the status column's collation
}

// Index is an index of the table.
type Index struct {
	Name    string
	unique  bool
	Columns []string // lower case; "" for an expression or the beginning of a column
}

func describe(ctx context.Context, db *sql.DB, m Mapping) (description, error) {
	d := description{zoneKnown: true}
	var version, kind string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return d, err
	}
	d.mariaDB, d.waits = strings.Contains(strings.ToLower(version), "mariadb"), !server.SkipsLocked(version)
	// The server compares the names by its own rule (lower_case_table_names) and answers with its own spelling.
	err := db.QueryRowContext(ctx, "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, COALESCE(ENGINE, '') FROM "+
		"information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY TABLE_NAME = CAST(? AS BINARY) DESC LIMIT 1",
		m.Schema, m.Name, m.Name).Scan(&d.schema, &d.name, &kind, &d.engine)
	if errors.Is(err, sql.ErrNoRows) {
		return d, d.notFound(ctx, db, m)
	} else if err != nil {
		return d, err
	}
	d.found, d.view = true, kind != "BASE TABLE"
	if d.columns, err = describeColumns(ctx, db, d); err != nil {
		return d, err
	}
	if d.indexes, err = describeIndexes(ctx, db, d.schema, d.name); err != nil {
		return d, err
	}
	if d.definitions, err = describeDefinitions(ctx, db, d.schema, d.name); err != nil {
		return d, err
	}
	if d.alike, err = describeWords(ctx, db, m, d); err != nil {
		return d, err
	}
	if d.zone, err = server.Zone(ctx, db, nil); err != nil || m.TimeZone == "" {
		return d, err
	}
	err = db.QueryRowContext(ctx, "SELECT CONVERT_TZ('2026-01-01 00:00:00', '+00:00', ?) IS NOT NULL",
		m.TimeZone).Scan(&d.zoneKnown)
	return d, err
}

func describeColumns(ctx context.Context, db *sql.DB, d description) ([]ColumnType, error) {
	query := Text("SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COALESCE(CHARACTER_MAXIMUM_LENGTH, 0), ",
		"COALESCE(CHARACTER_OCTET_LENGTH, 0), COALESCE(DATETIME_PRECISION, 0), COALESCE(CHARACTER_SET_NAME, ''), ",
		"COALESCE(COLLATION_NAME, ''), IS_NULLABLE = 'YES', COLUMN_DEFAULT, EXTRA FROM information_schema.COLUMNS ",
		"WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION")
	query.Args = []any{d.schema, d.name}
	var out []ColumnType
	var c ColumnType
	var constant sql.NullString
	into := []any{&c.Name, &c.DataType, &c.fullType, &c.Characters, &c.Octets, &c.Fraction, &c.Charset, &c.Collation, &c.Nullable, &constant, &c.extra}
	err := query.Each(ctx, db, into, func() error {
		c.DataType, c.fullType, c.extra = strings.ToLower(c.DataType), strings.ToLower(c.fullType), strings.ToLower(c.extra)
		c.Unsigned = strings.Contains(c.fullType, "unsigned")
		c.fallback = constantDefault(d.mariaDB, constant.String, !constant.Valid, c.extra)
		out = append(out, c)
		return nil
	})
	return out, err
}

func describeIndexes(ctx context.Context, db *sql.DB, schema, name string) ([]Index, error) {
	query := Text("SELECT INDEX_NAME, NON_UNIQUE = 0, IF(SUB_PART IS NULL, COALESCE(COLUMN_NAME, ''), '') ",
		"FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY INDEX_NAME, SEQ_IN_INDEX")
	query.Args = []any{schema, name}
	var out []Index
	var index, column string
	var unique bool
	err := query.Each(ctx, db, []any{&index, &unique, &column}, func() error {
		if n := len(out); n == 0 || out[n-1].Name != index {
			out = append(out, Index{Name: index, unique: unique})
		}
		last := &out[len(out)-1]
		last.Columns = append(last.Columns, strings.ToLower(column))
		return nil
	})
	return out, err
}

// notFound asks why information_schema does not show the table: it shows no table on which the account has no privilege.
func (d *description) notFound(ctx context.Context, db *sql.DB, m Mapping) error {
	rows, err := db.QueryContext(ctx, "SELECT 1 FROM "+Quote(m.Schema)+"."+Quote(m.Name)+" LIMIT 0")
	if err == nil {
		err = rows.Close() // it was made, or granted, at this time: the next query finds it
	}
	switch code := server.Code(err); {
	case code == 1146 || code == 1049: // no such table, no such schema
		d.absent, err = true, nil
	case code != 0: // hidden
		err = nil
	}
	if err != nil {
		return err
	}
	return db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&d.account)
}

// Indexes are those that a server has on the table.
func (t *Table) Indexes(ctx context.Context, db *sql.DB) ([]Index, error) {
	return describeIndexes(ctx, db, t.schema, t.Bare())
}
