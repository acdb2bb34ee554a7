package canal

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/canal/definition"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// read reads columns and position while a transaction holds the table's metadata lock: no DDL can run between the two.
func (s *schemaVersions) read(ctx context.Context, name string) (v schemaVersion, err error) {
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	schema, table, _ := strings.Cut(name, ".")
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return v, fmt.Errorf("read the columns of %s: %w", name, err)
	}
	defer func() { _ = tx.Rollback() }() // it has no changes; a rollback releases the lock
	if _, err := tx.ExecContext(ctx, "SELECT 1 FROM "+server.QuoteName(schema)+"."+server.QuoteName(table)+" LIMIT 0"); err != nil {
		return v, fmt.Errorf("read the columns of %s: %w", name, err)
	}
	if v.Table, err = readTable(ctx, tx, schema, table); err != nil {
		return v, fmt.Errorf("read the columns of %s: %w", name, err)
	}
	v.Source = s.info.ID
	v.From, err = s.info.End(ctx, s.db)
	v.From.GTIDs = ""
	return v, err
}

func readTable(ctx context.Context, tx *sql.Tx, schema, name string) (*definition.Table, error) {
	var collation sql.NullString
	if err := tx.QueryRowContext(ctx, "SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?", schema, name).Scan(&collation); err != nil {
		return nil, err
	}
	t := &definition.Table{Charset: definition.CharsetOf(collation.String)}
	rows, err := tx.QueryContext(ctx, "SELECT COLUMN_NAME, LOWER(DATA_TYPE), LOWER(COLUMN_TYPE) LIKE '%unsigned%', COALESCE(CHARACTER_SET_NAME, '') "+
		"FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION", schema, name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c definition.Column
		if err := rows.Scan(&c.Name, &c.Type, &c.Unsigned, &c.Charset); err != nil {
			return nil, err
		}
		if c.Charset == "utf8" { // what newer servers call utf8mb3
			c.Charset = "utf8mb3"
		}
		t.Columns = append(t.Columns, c)
	}
	return t, rows.Err()
}

// namedColumns compares count and types with the table map, as a second check of the version's range.
func namedColumns(t *definition.Table, tm *replication.TableMapEvent) (infos []columnInfo, fault string) {
	if len(t.Columns) != int(tm.ColumnCount) {
		return nil, fmt.Sprintf("%d columns in the log, %d in the table's definition", tm.ColumnCount, len(t.Columns))
	}
	for i, c := range t.Columns {
		if typ := realType(tm, i); !slices.Contains(logTypes[c.Type], typ) && logTypes[c.Type] != nil {
			return nil, fmt.Sprintf("column %s is %s in the table's definition and type %d in the log", c.Name, c.Type, typ)
		}
		infos = append(infos, columnInfo{name: c.Name, unsigned: c.Unsigned, charset: c.Charset, unsure: c.Charset == "" && slices.Contains(texts, c.Type)})
	}
	return infos, ""
}

// texts are the types whose columns have a character set. A statement may leave it to the default of the database, which the log does not show.
var texts = []string{"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}

// logTypes are the types that a table map has for those of information_schema; others are not compared.
var logTypes = map[string][]byte{
	"tinyint": {mysql.MYSQL_TYPE_TINY}, "smallint": {mysql.MYSQL_TYPE_SHORT}, "mediumint": {mysql.MYSQL_TYPE_INT24},
	"int": {mysql.MYSQL_TYPE_LONG}, "bigint": {mysql.MYSQL_TYPE_LONGLONG},
	"float": {mysql.MYSQL_TYPE_FLOAT}, "double": {mysql.MYSQL_TYPE_DOUBLE}, "decimal": {mysql.MYSQL_TYPE_NEWDECIMAL},
	"datetime":  {mysql.MYSQL_TYPE_DATETIME2, mysql.MYSQL_TYPE_DATETIME},
	"timestamp": {mysql.MYSQL_TYPE_TIMESTAMP2, mysql.MYSQL_TYPE_TIMESTAMP},
	"char":      {mysql.MYSQL_TYPE_STRING}, "binary": {mysql.MYSQL_TYPE_STRING},
	"varchar": {mysql.MYSQL_TYPE_VARCHAR}, "varbinary": {mysql.MYSQL_TYPE_VARCHAR},
	"tinytext": {mysql.MYSQL_TYPE_BLOB}, "text": {mysql.MYSQL_TYPE_BLOB}, "mediumtext": {mysql.MYSQL_TYPE_BLOB},
	"longtext": {mysql.MYSQL_TYPE_BLOB}, "tinyblob": {mysql.MYSQL_TYPE_BLOB}, "blob": {mysql.MYSQL_TYPE_BLOB},
	"mediumblob": {mysql.MYSQL_TYPE_BLOB}, "longblob": {mysql.MYSQL_TYPE_BLOB}, "json": {mysql.MYSQL_TYPE_JSON},
	"enum": {mysql.MYSQL_TYPE_ENUM}, "set": {mysql.MYSQL_TYPE_SET}, "bit": {mysql.MYSQL_TYPE_BIT},
}
