package canal

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// schemaVersion is what the server said about a table's columns, and from where on that is true of the log: from the
// position read while the columns could not change, until a statement that names the table.
type schemaVersion struct {
	Source  server.ID       `json:"source"`
	From    outbox.Position `json:"from"`
	Columns []schemaColumn  `json:"columns"`
}

// schemaColumn is one row of information_schema.COLUMNS, in ordinal order.
type schemaColumn struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Unsigned bool   `json:"unsigned,omitempty"`
	Charset  string `json:"charset,omitempty"`
}

// schemaVersions name the columns where table maps do not (binlog_row_metadata is not FULL). Versions are kept in the
// store, so that the rows of a restart's catch-up are readable too.
type schemaVersions struct {
	store SchemaStore // nil: none
	db    *sql.DB
	info  server.Info
	open  map[string]schemaVersion // by table
	tried map[string]time.Time     // last look at the server
}

const (
	schemaTimeout = 5 * time.Second
	schemaPause   = 50 * time.Millisecond // between two looks for one table, so that a series of DDL does not stop the stream
)

// connect makes versions ready before a stream. A stored one goes on to hold if the server still says the same; if not,
// the columns have changed somewhere in between, and rows up to now are deferred.
func (s *schemaVersions) connect(ctx context.Context, tables []*mapped) error {
	s.tried = map[string]time.Time{}
	if s.info.RowMetadata == "FULL" {
		return s.forget() // nobody would notice that they end
	}
	if err := s.load(); err != nil {
		return err
	}
	for _, t := range tables {
		now, err := s.read(ctx, t.name)
		if server.Classify(err) == server.Lost {
			return err
		}
		v, ok := s.open[t.name]
		if ok && err == nil && v.Source == now.Source && slices.Equal(v.Columns, now.Columns) {
			continue
		}
		t.forget()
		delete(s.open, t.name)
		if err != nil { // dropped, or no grant: nothing can be read of it, the other tables can
			t.refused(err)
			continue
		}
		if err := s.keep(t.name, now); err != nil {
			return err
		}
	}
	return nil
}

// load reads the store once.
func (s *schemaVersions) load() error {
	if s.open != nil {
		return nil
	}
	open := map[string]schemaVersion{}
	if s.store != nil {
		blobs, err := s.store.Schemas()
		if err != nil {
			return &handlerError{fmt.Errorf("read the stored column versions: %w", err)}
		}
		for name, blob := range blobs {
			var v schemaVersion
			if err := json.Unmarshal(blob, &v); err != nil {
				return &handlerError{fmt.Errorf("stored column version of %s: %w", name, err)}
			}
			open[name] = v
		}
	}
	s.open = open
	return nil
}

// plan names the columns of a table map. Without a version it asks the server: that one holds for later rows only.
func (s *schemaVersions) plan(t *mapped, tm *replication.TableMapEvent) *plan {
	if err := s.load(); err != nil {
		return &plan{id: tm.TableID, fault: err.Error()}
	}
	v, ok := s.open[t.name]
	if !ok {
		s.refresh(t)
		if v, ok = s.open[t.name]; !ok {
			return &plan{id: tm.TableID, fault: "the log has no column names, and the server could not be asked for them"}
		}
	}
	infos, fault := v.infos(tm)
	if fault != "" {
		return &plan{id: tm.TableID, fault: fault}
	}
	p := newPlan(tm, infos, t.wanted)
	p.from = v.From
	return p
}

// end closes a version at the statement that ended it, durably, since a restart may begin behind that statement.
func (s *schemaVersions) end(t *mapped, at outbox.Position) error {
	v, ok := s.open[t.name]
	if !ok || v.From.Compare(at) >= 0 {
		return nil // none, or one read after the statement
	}
	delete(s.open, t.name)
	if s.store != nil {
		if err := s.store.SaveSchema(t.name, nil); err != nil {
			return &handlerError{fmt.Errorf("remove the column version of %s: %w", t.name, err)}
		}
	}
	s.refresh(t)
	return nil
}

// idle uses a quiet moment to read what is missing.
func (s *schemaVersions) idle(tables []*mapped) {
	if s.info.RowMetadata == "FULL" {
		return
	}
	for _, t := range tables {
		if _, ok := s.open[t.name]; !ok {
			s.refresh(t)
		}
	}
}

// forget drops all versions, because the log was not read without a gap.
func (s *schemaVersions) forget() error {
	if err := s.load(); err != nil {
		return err
	}
	for name := range s.open {
		delete(s.open, name)
		if s.store == nil {
			continue
		}
		if err := s.store.SaveSchema(name, nil); err != nil {
			return &handlerError{fmt.Errorf("remove the column version of %s: %w", name, err)}
		}
	}
	return nil
}

// refresh asks the server for the present columns. If that fails the rows are deferred and the next table map tries again.
func (s *schemaVersions) refresh(t *mapped) {
	if s.db == nil || time.Since(s.tried[t.name]) < schemaPause {
		return
	}
	s.tried[t.name] = time.Now()
	v, err := s.read(context.Background(), t.name)
	if err == nil {
		err = s.keep(t.name, v)
	}
	if err != nil {
		t.refused(err)
	}
}

func (s *schemaVersions) keep(name string, v schemaVersion) error {
	if s.store != nil {
		blob, err := json.Marshal(v)
		if err == nil {
			err = s.store.SaveSchema(name, blob)
		}
		if err != nil {
			return &handlerError{fmt.Errorf("store the column version of %s: %w", name, err)}
		}
	}
	s.open[name] = v
	return nil
}

// read looks at columns and position while a transaction holds the table's metadata lock: no DDL can come in between.
func (s *schemaVersions) read(ctx context.Context, name string) (v schemaVersion, err error) {
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	schema, table, _ := strings.Cut(name, ".")
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return v, fmt.Errorf("read the columns of %s: %w", name, err)
	}
	defer func() { _ = tx.Rollback() }() // it has nothing to undo, and releases the lock either way
	quoted := "`" + strings.ReplaceAll(schema, "`", "``") + "`.`" + strings.ReplaceAll(table, "`", "``") + "`"
	if _, err := tx.ExecContext(ctx, "SELECT 1 FROM "+quoted+" LIMIT 0"); err != nil {
		return v, fmt.Errorf("read the columns of %s: %w", name, err)
	}
	if v.Columns, err = readColumns(ctx, tx, schema, table); err != nil {
		return v, fmt.Errorf("read the columns of %s: %w", name, err)
	}
	v.Source = s.info.ID
	v.From, err = s.info.End(ctx, s.db)
	v.From.GTIDs = ""
	return v, err
}

func readColumns(ctx context.Context, tx *sql.Tx, schema, table string) (columns []schemaColumn, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT COLUMN_NAME, LOWER(DATA_TYPE), LOWER(COLUMN_TYPE) LIKE '%unsigned%', COALESCE(CHARACTER_SET_NAME, '') "+
		"FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION", schema, table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c schemaColumn
		if err := rows.Scan(&c.Name, &c.Type, &c.Unsigned, &c.Charset); err != nil {
			return nil, err
		}
		columns = append(columns, c)
	}
	return columns, rows.Err()
}

// infos compares count and types with the table map, as a second check of the interval.
func (v *schemaVersion) infos(tm *replication.TableMapEvent) (infos []columnInfo, fault string) {
	if len(v.Columns) != int(tm.ColumnCount) {
		return nil, fmt.Sprintf("%d columns in the log, %d on the server", tm.ColumnCount, len(v.Columns))
	}
	for i, c := range v.Columns {
		if typ := realType(tm, i); !slices.Contains(logTypes[c.Type], typ) && logTypes[c.Type] != nil {
			return nil, fmt.Sprintf("column %s is %s on the server and type %d in the log", c.Name, c.Type, typ)
		}
		infos = append(infos, columnInfo{name: c.Name, unsigned: c.Unsigned, charset: charsetByName(c.Charset)})
	}
	return infos, ""
}

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
