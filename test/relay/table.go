package relay

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// Row is a row of an outbox table as an application writes it.
type Row struct {
	MessageID   string // of the preset t_local_message: BizType + ":" + Key
	BizType     string
	Key         string
	Topic       string
	Tag         string            // "" is NULL, as in the next two
	ShardingKey string            // the same in all rows of a key, or its order cannot be seen
	Headers     map[string]string // nil is NULL
	Body        []byte            // nil is NULL

	// Loose rows are not on the normal path, so their order is not compared.
	Loose bool

	// Number is the row's in the load; the ids of a layout follow from it.
	Number int
}

// Table is an outbox table, of one of the presets with all columns that it can map, or of a layout as its owners have it.
type Table struct {
	DB             *sql.DB         // with the schema
	Schema, Preset string          // the preset, which is the table's name too
	Layout         *layouts.Layout // of a table of NewLayout
	Extra          string          // more of its entry in the configuration, as ", ordering: key"
	insert         string          // up to VALUES
	places         string          // of one row
}

// chain is what makes the layout of an order chain one that takes every kind of row.
const chain = "ALTER TABLE `order-chain` MODIFY message_id VARCHAR(128) NOT NULL, MODIFY topic VARCHAR(255) NOT NULL, " +
	"MODIFY message_body LONGBLOB NULL, ADD tag VARCHAR(128) NULL, ADD sharding_key VARCHAR(128) NULL, ADD headers LONGTEXT NULL, " +
	"ADD fail_reason VARCHAR(1024) NULL, ADD updated_by VARCHAR(64) NULL, MODIFY create_time DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), " +
	"MODIFY update_time DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

// NewTable makes the table in the schema, named like its preset, with all columns that the preset can map. Bodies of the preset
// order-chain may hold any bytes.
func NewTable(t testing.TB, db *sql.DB, schema, preset string) *Table {
	t.Helper()
	layout, own := preset, "biz_type, biz_key"
	switch preset {
	case "t_local_message":
		layout = "outbox"
	case "order-chain":
		own = "message_id, business_type, business_id"
	}
	ddl, err := migrations.DDL(layout, preset)
	testkit.Must(t, err)
	testkit.Exec(t, db, ddl)
	if preset == "order-chain" {
		testkit.Exec(t, db, chain)
	}
	own += ", topic, tag, sharding_key, headers, message_body"
	return &Table{
		DB: db, Schema: schema, Preset: preset,
		insert: "INSERT INTO `" + preset + "` (" + own + ") VALUES ",
		places: "(" + strings.Repeat("?, ", strings.Count(own, ",")) + "?)",
	}
}

// NewLayout makes the table of a layout in the schema; nil is the table that has every column.
func NewLayout(t testing.TB, db *sql.DB, schema string, layout *layouts.Layout) *Table {
	t.Helper()
	if layout == nil {
		return NewTable(t, db, schema, "t_local_message")
	}
	testkit.Exec(t, db, layout.Create())
	return &Table{DB: db, Schema: schema, Preset: layout.Table, Layout: layout}
}

// config is the table's entry in the configuration.
func (tb *Table) config() string {
	if tb.Layout != nil {
		return fmt.Sprintf("{name: %q, %s%s}", tb.FullName(), tb.Layout.Config, tb.Extra)
	}
	return fmt.Sprintf("{name: %q, preset: %q%s}", tb.FullName(), tb.Preset, tb.Extra)
}

// Like makes an additional, empty table of the same preset.
func (tb *Table) Like(t testing.TB, name string) *Table {
	t.Helper()
	testkit.Exec(t, tb.DB, "CREATE TABLE `"+name+"` LIKE "+tb.Name())
	other := *tb
	other.Preset, other.insert = name, strings.Replace(tb.insert, tb.Name(), "`"+name+"`", 1)
	return &other
}

// NewLease makes the lease table in the table's schema, for relays that are to stand by.
func (tb *Table) NewLease(t testing.TB) {
	t.Helper()
	ddl, err := migrations.DDL("lease", tb.Schema+".canal_outbox_lease")
	testkit.Must(t, err)
	testkit.Exec(t, tb.DB, ddl)
}

// FullName is schema.table.
func (tb *Table) FullName() string { return tb.Schema + "." + tb.Preset }

// Name is the table's quoted name.
func (tb *Table) Name() string { return "`" + tb.Preset + "`" }

// Execer is a connection or a transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Insert writes rows with one statement.
func (tb *Table) Insert(ctx context.Context, to Execer, rows ...Row) error {
	if tb.Layout != nil {
		return tb.insertLayout(ctx, to, rows)
	}
	var args []any
	for _, r := range rows {
		if tb.Preset == "order-chain" {
			args = append(args, r.MessageID)
		}
		var headers any
		if r.Headers != nil {
			text, err := json.Marshal(r.Headers)
			if err != nil {
				return err
			}
			headers = string(text)
		}
		args = append(args, r.BizType, r.Key, r.Topic, nullable(r.Tag), nullable(r.ShardingKey), headers, r.body(tb))
	}
	_, err := to.ExecContext(ctx, tb.insert+strings.Repeat(tb.places+", ", len(rows)-1)+tb.places, args...)
	return err
}

func (tb *Table) insertLayout(ctx context.Context, to Execer, rows []Row) error {
	var statement strings.Builder
	var all []any
	for i, r := range rows {
		query, args := tb.Layout.Insert(r.Number, strings.TrimPrefix(r.Topic, layouts.EventTopic), string(r.Body))
		if head, places, _ := strings.Cut(query, " VALUES "); i == 0 {
			statement.WriteString(head + " VALUES " + places)
		} else {
			statement.WriteString(", " + places)
		}
		all = append(all, args...)
	}
	_, err := to.ExecContext(ctx, statement.String(), all...)
	return err
}

func nullable(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }

// body is text for a text column: the driver would announce bytes, which the server refuses there unless they are UTF-8.
func (r Row) body(tb *Table) any {
	switch {
	case r.Body == nil:
		return nil
	case tb.Preset == "order-chain":
		return r.Body
	}
	return string(r.Body)
}

// SetBody changes the body of a row that has not been committed yet.
func (tb *Table) SetBody(ctx context.Context, in Execer, r Row) error {
	query, args := "UPDATE "+tb.Name()+" SET message_body = ? WHERE message_id = ?", []any{r.body(tb), r.MessageID}
	switch {
	case tb.Layout != nil:
		query, args = "UPDATE "+tb.Name()+" SET "+tb.Layout.Body+" = ? WHERE "+tb.Layout.Where(r.Number), []any{string(r.Body)}
	case tb.Preset != "order-chain":
		query, args = "UPDATE "+tb.Name()+" SET message_body = ? WHERE biz_type = ? AND biz_key = ?", []any{r.body(tb), r.BizType, r.Key}
	}
	_, err := in.ExecContext(ctx, query, args...)
	return err
}

// Count counts the rows for which a condition holds.
func (tb *Table) Count(t testing.TB, where string) int {
	t.Helper()
	var n int
	testkit.Must(t, tb.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+tb.Name()+" WHERE "+where).Scan(&n))
	return n
}

// LogOnly reports whether the table has no status.
func (tb *Table) LogOnly() bool { return tb.Layout != nil && tb.Layout.LogOnly() }

// ID is the column of the primary key.
func (tb *Table) ID() string {
	if tb.Layout != nil {
		return tb.Layout.ID
	}
	return "id"
}

// Sent is the condition that a row is SENT.
func (tb *Table) Sent() string {
	if tb.Layout != nil {
		return tb.Layout.Sent()
	}
	return "status = 2"
}

// SentIDs returns the message ids of the rows that are SENT.
func (tb *Table) SentIDs(t testing.TB) map[string]bool {
	t.Helper()
	id := "message_id"
	switch {
	case tb.Layout != nil:
		id = tb.Layout.MessageIDs
	case tb.Preset != "order-chain":
		id = "CONCAT(biz_type, ':', biz_key)"
	}
	ids, err := Select(t.Context(), tb.DB, func(id *string) []any { return []any{id} }, "SELECT "+id+" FROM "+tb.Name()+" WHERE "+tb.Sent())
	testkit.Must(t, err)
	return SetOf(ids)
}

// Select returns the rows of a query; columns says where the columns of a row go.
func Select[T any](ctx context.Context, db *sql.DB, columns func(row *T) []any, query string, args ...any) (all []T, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var row T
		if err := rows.Scan(columns(&row)...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// SetOf is a list as a set.
func SetOf(list []string) map[string]bool {
	set := map[string]bool{}
	for _, one := range list {
		set[one] = true
	}
	return set
}
