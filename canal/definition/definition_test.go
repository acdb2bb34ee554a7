package definition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

var (
	mysql8  = Server{Version: 80031}
	mariadb = Server{MariaDB: true, Version: 101108}
)

// catalog is what is known about tables, for tests.
type catalog map[string]State

// run applies a statement; an error makes every table that the statement changes unknown.
func (c catalog) run(s Statement) error {
	changes, err := Read(s)
	for _, change := range changes {
		if failed := change.Apply(func(name string) State { return c[name] }, func(name string, s State) { c[name] = s }); failed != nil {
			err = failed
		}
	}
	return err
}

func (s State) String() string {
	if s.Table == nil {
		return map[bool]string{true: "absent", false: "unknown"}[s.Known]
	}
	var out []string
	for _, c := range s.Table.Columns {
		text := c.Name + " " + c.Type
		if c.Unsigned {
			text += " unsigned"
		}
		if c.Charset != "" {
			text += " " + c.Charset
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// start is the table that the cases change.
const start = "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, a VARCHAR(10), b TEXT, c INT) DEFAULT CHARSET=utf8mb4"

// run returns the state of shop.t after statements, the first of which finds the table of start.
func run(t *testing.T, change func(*Statement), statements ...string) (State, error) {
	t.Helper()
	c := catalog{}
	s := Statement{SQL: []byte(start), Schema: "shop", Charset: UTF8, Server: mysql8}
	if err := c.run(s); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&s)
	}
	var last error
	for _, sql := range statements {
		s.SQL = []byte(sql)
		if err := c.run(s); err != nil {
			last = fmt.Errorf("%s: %w", sql, err)
		}
	}
	return c["shop.t"], last
}

// ids are the columns of start as a case names them.
var ids = strings.NewReplacer("ID", "id bigint unsigned", "A", "a varchar utf8mb4", "B", "b text utf8mb4", "C", "c int")

func TestStatements(t *testing.T) {
	maria := func(s *Statement) { s.Server = mariadb }
	other := func(s *Statement) { s.Schema = "other" }
	fold := func(s *Statement) { s.Server.Fold = true }
	ansi := func(s *Statement) { s.ANSIQuotes = true }
	plain := func(s *Statement) { s.NoBackslashEscapes = true }
	for _, c := range []struct {
		change    func(*Statement)
		statement string // statements, separated by " ;; "
		want      string
	}{
		{nil, "ALTER TABLE t ADD x INT", "ID, A, B, C, x int"},
		{nil, "alter table `t` add column `x` int unsigned not null default 7 first", "x int unsigned, ID, A, B, C"},
		{nil, "ALTER TABLE t ADD x INT AFTER a, ADD y INT AFTER x, ADD z INT FIRST, ADD w INT FIRST", "w int, z int, ID, A, x int, y int, B, C"},
		{nil, "ALTER TABLE t ADD (x INT, y VARCHAR(3), KEY (x))", "ID, A, B, C, x int, y varchar utf8mb4"},
		{nil, "ALTER TABLE t DROP a, DROP COLUMN c, DROP KEY k, DROP PRIMARY KEY, DROP CHECK q, DROP CONSTRAINT w, DROP FOREIGN KEY f", "ID, B"},
		{nil, "ALTER TABLE t MODIFY c BIGINT AFTER id", "ID, c bigint, A, B"},
		{nil, "ALTER TABLE t CHANGE a d VARCHAR(20) CHARACTER SET latin1, CHANGE b a TEXT", "ID, d varchar latin1, a text utf8mb4, C"},
		{nil, "ALTER TABLE t CHANGE a b VARCHAR(10), CHANGE b a TEXT", "ID, b varchar utf8mb4, a text utf8mb4, C"},
		{nil, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", "ID, b varchar utf8mb4, a text utf8mb4, C"},
		{nil, "ALTER TABLE t RENAME COLUMN a TO d, ADD x INT AFTER d", "ID, d varchar utf8mb4, x int, B, C"},
		{nil, "ALTER TABLE t DROP a, ADD a INT FIRST", "a int, ID, B, C"},
		{nil, "ALTER TABLE t ADD x INT AFTER b, MODIFY b TEXT FIRST, MODIFY a VARCHAR(10) AFTER c", "B, ID, x int, C, A"},
		{nil, "ALTER TABLE t MODIFY id BIGINT UNSIGNED AFTER b, MODIFY b TEXT FIRST", "B, A, ID, C"},
		{maria, "ALTER TABLE t ADD x INT, MODIFY x BIGINT AFTER a, MODIFY IF EXISTS y INT", "ID, A, x bigint, B, C"},
		{nil, "ALTER TABLE t MODIFY b TEXT FIRST, ADD x INT AFTER b", "B, x int, ID, A, C"},
		{nil, "ALTER TABLE t ADD x INT GENERATED ALWAYS AS (c + 1) VIRTUAL AFTER a, ADD y INT AS (LENGTH(CONCAT(a, ','))) STORED", "ID, A, x int, B, C, y int"},
		{nil, "ALTER TABLE t ADD x INT INVISIBLE AFTER a, ALTER COLUMN c SET INVISIBLE, ALTER INDEX k INVISIBLE", "ID, A, x int, B, C"},
		{nil, "ALTER TABLE t ADD x VARCHAR(9) COLLATE utf8mb4_0900_bin DEFAULT (uuid()) COMMENT 'it''s, (AFTER b)' AFTER a", "ID, A, x varchar utf8mb4, B, C"},
		{nil, "ALTER TABLE t ADD x TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), ADD y ENUM('a','b,c') DEFAULT 'a'", "ID, A, B, C, x timestamp, y enum utf8mb4"},
		{nil, "ALTER TABLE t ADD x INT REFERENCES u (a) ON DELETE SET NULL ON UPDATE NO ACTION, ADD y INT CHECK (y > 1) NOT ENFORCED", "ID, A, B, C, x int, y int"},
		{nil, "ALTER TABLE t ADD x VARCHAR(3) CHARACTER SET binary, ADD y CHAR(3) BYTE, ADD z NCHAR(3), ADD v CHAR(3) ASCII", "ID, A, B, C, x varbinary, y binary, z char utf8mb3, v char latin1"},
		{nil, "ALTER TABLE t ADD x DOUBLE PRECISION, ADD y FLOAT(30), ADD z LONG VARBINARY, ADD w SERIAL, ADD v BOOL, ADD u CHAR VARYING(3)", "ID, A, B, C, x double, y double, z mediumblob, w bigint unsigned, v tinyint, u varchar utf8mb4"},
		{nil, "ALTER TABLE t CONVERT TO CHARACTER SET gbk, ADD x CHAR(3)", "ID, a varchar gbk, b text gbk, C, x char gbk"},
		{nil, "ALTER TABLE t CHARACTER SET = latin1 ;; ALTER TABLE t ADD x CHAR(3), COLLATE utf8mb3_bin ;; ALTER TABLE t ADD y CHAR(3)", "ID, A, B, C, x char utf8mb3, y char utf8mb3"},
		{nil, "ALTER TABLE t ENGINE=InnoDB ROW_FORMAT=DYNAMIC, ALGORITHM=INPLACE, LOCK=NONE, FORCE, ADD SPATIAL INDEX (g), ADD CONSTRAINT UNIQUE (a, b), RENAME INDEX k TO l", "ID, A, B, C"},
		{nil, "ALTER TABLE t ADD x INT PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (1), PARTITION q VALUES LESS THAN (2))", "ID, A, B, C, x int"},
		{nil, "ALTER TABLE t DROP PARTITION p, q", "ID, A, B, C"},
		{nil, "ALTER TABLE t ORDER BY a, drop", "ID, A, B, C"},
		{nil, "ALTER TABLE t RENAME u", "absent"},
		{nil, "ALTER TABLE t ADD x INT, RENAME TO shop.u ;; RENAME TABLE u TO t", "ID, A, B, C, x int"},
		{nil, "TRUNCATE t ;; CREATE INDEX i ON t (a) ;; ANALYZE TABLE t ;; ALTER DATABASE shop CHARSET latin1 ;; DROP INDEX i ON t", "ID, A, B, C"},
		{nil, "CREATE DEFINER=`root`@`%` TRIGGER x AFTER INSERT ON t FOR EACH ROW INSERT INTO u VALUES (1)", "ID, A, B, C"},
		{nil, "DROP TABLE IF EXISTS x, `t` /* generated by server */", "absent"},
		{nil, "DROP DATABASE IF EXISTS shop", "ID, A, B, C"}, // applied to all of a schema by who knows the tables
		{nil, "CREATE TABLE IF NOT EXISTS t (z INT)", "ID, A, B, C"},
		{nil, "CREATE TABLE u LIKE t ;; ALTER TABLE u ADD x INT FIRST ;; RENAME TABLE t TO o, u TO t", "x int, ID, A, B, C"},
		{nil, "DROP TABLE t ;; CREATE TABLE t (a INT KEY, KEY (a), CONSTRAINT c CHECK (a > 1), b CHAR(1)) ENGINE=InnoDB COMMENT='a=b, SELECT' COLLATE=latin1_bin", "a int, b char latin1"},
		{nil, "CREATE TABLE t (a INT, b CHAR(3)) START TRANSACTION", "a int, b char"},
		{nil, "ALTER TABLE t /* ADD y INT, */ ADD x INT -- , ADD y INT\n, ADD z INT # ADD y INT", "ID, A, B, C, x int, z int"},
		{nil, "ALTER TABLE t /*!80000 ADD x INT */ /*!99999 ADD y INT */ /*M! ADD y INT */", "ID, A, B, C, x int"},
		{nil, "/*!50100 ALTER */ TABLE t ADD x INT /*! AFTER a */", "ID, A, x int, B, C"},
		{maria, "ALTER TABLE t ADD x INT /*!50600 AFTER a */ /*!80000 NONSENSE */ /*M!100000 , ADD y INT*/ /*M!119999 , ADD z INT */", "ID, A, x int, B, C, y int"},
		{maria, "ALTER ONLINE TABLE IF EXISTS t NOWAIT ADD COLUMN IF NOT EXISTS a INT, ADD x INET6, DROP COLUMN IF EXISTS y, MODIFY IF EXISTS z INT", "ID, A, B, C, x inet6"},
		{maria, "ALTER TABLE t WAIT 5 ADD x JSON, ADD y VARCHAR(9) COMPRESSED COLLATE uca1400_ai_ci, ADD z INT AS (c) PERSISTENT", "ID, A, B, C, x longtext utf8mb4, y varchar utf8mb4, z int"},
		{maria, "CREATE OR REPLACE TABLE t (x UUID, y TEXT) PAGE_COMPRESSED=1 COLLATE=utf8mb4_uca1400_ai_ci", "x uuid, y text utf8mb4"},
		{maria, "RENAME TABLE IF EXISTS t WAIT 5 TO u, v TO t", "unknown"},
		{other, "ALTER TABLE t ADD x INT ;; ALTER TABLE shop.t ADD y INT ;; ALTER TABLE `shop` . `t` ADD z INT", "ID, A, B, C, y int, z int"},
		{fold, "ALTER TABLE Shop.T ADD x INT", "ID, A, B, C, x int"},
		{nil, "ALTER TABLE T ADD x INT", "ID, A, B, C"},
		{ansi, `ALTER TABLE "t" ADD "x""y" INT AFTER "a"`, `ID, A, x"y int, B, C`},
		{nil, `ALTER TABLE t ADD x INT COMMENT "\", ADD y INT"`, "ID, A, B, C, x int"},
		{plain, `ALTER TABLE t ADD x INT COMMENT '\', ADD y INT`, "ID, A, B, C, x int, y int"},
		{nil, "ALTER TABLE t ADD `名` INT, ADD 备注 TEXT AFTER `名`", "ID, A, B, C, 名 int, 备注 text utf8mb4"},
		{func(s *Statement) { s.Charset = Wide }, "ALTER TABLE t ADD x INT COMMENT '\x95\x5c', ADD y INT", "ID, A, B, C, x int, y int"},
	} {
		got, err := run(t, c.change, strings.Split(c.statement, " ;; ")...)
		if want := replaced(c.want); got.String() != want {
			t.Errorf("%s:\n got %v, %v\nwant %s", c.statement, got, err, want)
		}
	}
}

// replaced writes out the columns of start.
func replaced(want string) string {
	parts := strings.Split(want, ", ")
	for i, p := range parts {
		if p == strings.ToUpper(p) {
			parts[i] = ids.Replace(p)
		}
	}
	return strings.Join(parts, ", ")
}

// What is not understood is an error, so that the table's definition counts as unknown.
func TestStatementsInDoubt(t *testing.T) {
	for _, statement := range []string{
		"ALTER TABLE t ADD x NONSENSE", "ALTER TABLE t ADD x INT NONSENSE", "ALTER TABLE t NONSENSE", "ALTER TABLE t ADD x INT; DROP TABLE t", "CALL p()",
		"ALTER TABLE t DROP zz", "ALTER TABLE t ADD a INT", "ALTER TABLE t ADD x INT AFTER zz", "ALTER TABLE t CHANGE zz x INT", "ALTER TABLE t RENAME COLUMN zz TO x",
		"ALTER TABLE t ADD x INT DEFAULT 1 + 1", "ALTER TABLE t ADD SYSTEM VERSIONING", "ALTER TABLE t ADD x INT COMMENT 'open", "ALTER TABLE t ADD x INT /* open",
		"CREATE TABLE t AS SELECT 1", "CREATE TABLE t (a INT) SELECT 1 AS a", "CREATE TABLE t SELECT 1", "CREATE TEMPORARY TABLE t (a INT)", "ALTER TABLE u ADD x INT",
		"CREATE TABLE t (a INT) WITH SYSTEM VERSIONING", "CREATE TABLE IF NOT EXISTS u (a INT)", "ALTER TABLE", "ALTER TABLE t ADD", "ALTER TABLE t ADD x", "ALTER TABLE t ADD x INT FIRST AFTER a",
		"RENAME TABLE t", "DROP TABLE", "ALTER TABLE t ADD x INT COMMENT '\x95\x5c'", "", "ALTER TABLE t MODIFY a INT AFTER a b",
	} {
		if _, err := run(t, nil, statement); err == nil {
			t.Errorf("%s: no error", statement)
		}
	}
}

// No text ends in a panic or an endless loop, and what is read names tables.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		start, "ALTER TABLE t ADD x INT /*!80000 AFTER a */, DROP b", "RENAME TABLE a TO b, c TO d", "DROP TABLE IF EXISTS a", "CREATE TABLE a LIKE b", "ALTER TABLE `t",
		"ALTER TABLE t ADD (x INT", "CREATE TABLE t (a ENUM('a'", "ALTER TABLE t CONVERT TO CHARACTER SET", "ALTER TABLE t ADD x INT DEFAULT", "/*!", "/*M!5", "a.b.", "ALTER TABLE t WAIT",
		"ALTER TABLE t ADD x INT COMMENT", "ALTER TABLE t ADD x INT STORAGE", "ALTER TABLE t COLLATE",
	} {
		f.Add([]byte(s), byte(0))
		f.Add([]byte(s), byte(0xff))
	}
	f.Fuzz(func(t *testing.T, sql []byte, flags byte) {
		s := Statement{SQL: sql, Schema: "shop", ANSIQuotes: flags&1 != 0, NoBackslashEscapes: flags&2 != 0, Charset: Charset(flags >> 2 & 3), Server: mysql8}
		if flags&16 != 0 {
			s.Server = mariadb
		}
		changes, err := Read(s)
		if err != nil && len(changes) > 0 {
			t.Fatalf("%q: changes and %v", sql, err)
		}
		known := catalog{"shop.t": {Known: true, Table: &Table{Columns: []Column{{Name: "a", Type: "int"}}}}}
		for _, c := range changes {
			if slices.Contains(c.Names(), "") {
				t.Fatalf("%q: a change without a table", sql)
			}
			_ = c.Apply(func(name string) State { return known[name] }, func(name string, s State) { known[name] = s })
		}
		for name := range maps.Keys(known) {
			if known[name].Table != nil && !known[name].Known {
				t.Fatalf("%q: %s has columns and is unknown", sql, name)
			}
		}
	})
}
