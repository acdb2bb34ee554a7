package canal

import (
	"bufio"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

var recordLogs = flag.Bool("record", false, "record testdata/recorded again, with the servers that are installed")

// recordedSchema is the one schema of a recorded log; a server of its own is recorded.
const recordedSchema = "recorded"

// recordedTable reads a column of each kind that a message may consist of; the others are skipped.
var recordedTable = plainTable{recordedSchema + ".t_local_message", []string{"id", "biz_key", "u", "at", "ts", "doc", "raw", "latin", "note", "message_body"}}

// recordedLog has what servers write differently: each type of column, several rows in one event and several events in one statement, NULLs,
// changes in the same transaction, savepoints, rollbacks, statements that change the table, XA, and compressed transactions where there are some.
func recordedLog(db *testkit.Database) []string {
	const columns = "(biz_key, u, price, ratio, at, day, ts, bits, kind, tags, doc, raw, latin, note, message_body)"
	row := func(key, note string) string {
		return "('" + key + "', 18446744073709551615, -12345.67, 0.25, '2026-11-25 23:59:59.123', '1999-12-31', '2026-11-25 12:00:00.5', b'101', 'paid', 'a,c', " +
			`'{"n": 1, "list": [true, null, "é"], "f": 1.5}', x'00ff27', 'né', ` + note + ", '" + key + " 消息')"
	}
	insert := func(rows ...string) string {
		return "INSERT INTO t_local_message " + columns + " VALUES " + strings.Join(rows, ", ")
	}
	null := func(key string) string {
		return "('" + key + "', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '')"
	}
	list := []string{
		"CREATE TABLE t_local_message (id BIGINT AUTO_INCREMENT PRIMARY KEY, biz_key VARCHAR(40) NOT NULL, u BIGINT UNSIGNED, price DECIMAL(10,2), ratio DOUBLE, at DATETIME(3), day DATE, ts TIMESTAMP(1) NULL, " +
			"bits BIT(3), kind ENUM('new','paid'), tags SET('a','b','c'), doc JSON, raw VARBINARY(10), latin VARCHAR(10) CHARACTER SET latin1, note TEXT, message_body LONGTEXT NOT NULL, status TINYINT NOT NULL DEFAULT 0) CHARACTER SET utf8mb4",
		"CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200))",
		"SET time_zone = '+00:00', timestamp = 1795000000",
		insert(row("one", "NULL")),
		insert(row("two", "'n'"), null("three"), row("four", "REPEAT('x', 300)")),
		"BEGIN", "INSERT INTO other (v) VALUES ('x')", insert(row("five", "''")), "UPDATE t_local_message SET note = 'changed' WHERE biz_key = 'five'", "COMMIT",
		"BEGIN", insert(row("six", "''")), "SAVEPOINT s", insert(row("gone", "''")), "ROLLBACK TO s", "COMMIT",
		"BEGIN", insert(row("gone too", "''")), "ROLLBACK",
		"UPDATE t_local_message SET status = 2 WHERE biz_key = 'one'", "DELETE FROM t_local_message WHERE biz_key = 'two'",
		"SET binlog_row_image = MINIMAL", insert(row("seven", "'minimal'")), "INSERT INTO t_local_message (biz_key, message_body) VALUES ('left out', 'x')", "SET binlog_row_image = FULL",
		"ALTER TABLE t_local_message ADD COLUMN added INT NULL AFTER biz_key, MODIFY COLUMN note VARCHAR(2000)", insert(row("eight", "'altered'")),
		"RENAME TABLE t_local_message TO away, other TO t_old", "RENAME TABLE away TO t_local_message", insert(row("nine", "'renamed'")),
		"FLUSH TABLES", "XA START 'x'", insert(row("ten", "'xa'")), "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'",
	}
	switch {
	case db.Flavor == testkit.MariaDB:
		list = append(list, "SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10", insert(row("eleven", "REPEAT('c', 500)")), "SET GLOBAL log_bin_compress = OFF")
	case !db.Before(8, 0):
		list = append(list, "SET binlog_transaction_compression = ON", insert(row("eleven", "REPEAT('c', 500)"), row("twelve", "''")), "SET binlog_transaction_compression = OFF")
	}
	return append(list, insert(row("last", "''")))
}

// TestRecord records the log of each release, without a checksum, and what the library's parser makes of it.
func TestRecord(t *testing.T) {
	if !*recordLogs {
		t.Skip("-record is not set")
	}
	for _, flavor := range []testkit.Flavor{testkit.MySQL57, testkit.MySQL80, testkit.MySQL97, testkit.MariaDB, testkit.MariaDB118} {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
			testkit.Exec(t, db.Root(), "CREATE DATABASE "+recordedSchema)
			l := &lab{t: t, db: db, sql: db.Connect(t, recordedSchema), schema: recordedSchema}
			from := l.end()
			conn, err := l.sql.Conn(t.Context())
			testkit.Must(t, err)
			defer conn.Close()
			for _, statement := range recordedLog(db) {
				if _, err := conn.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			var version string
			testkit.Must(t, db.Root().QueryRow("SELECT VERSION()").Scan(&version))
			var text strings.Builder
			fmt.Fprintf(&text, "# The log of %s, one event in a line, and behind the dashes what is published. `go test ./canal -run TestRecord -record` writes it.\n%s\n", version, db.Flavor)
			events := l.record(t, from)
			for _, e := range events {
				text.WriteString(base64.StdEncoding.EncodeToString(e) + "\n")
			}
			text.WriteString("----\n" + replayed(t, 0, db.Flavor, events))
			testkit.Must(t, os.WriteFile(filepath.Join("testdata", "recorded", string(flavor)+".txt"), []byte(text.String()), 0o644))
		})
	}
}

// replayed is what is offered of a recorded log, with each value, in one of the ways of playThrough.
func replayed(t *testing.T, way int, flavor testkit.Flavor, events [][]byte) string {
	t.Helper()
	got := &recorder{}
	tables := newTableSet([]plainTable{recordedTable}, zap.NewNop())
	*tables.schemas = schemaVersions{ // the columns through CREATE TABLE and ALTER TABLE, where the log does not name them
		ctx: t.Context(), mapped: tables.list, known: map[string][]schemaVersion{}, tried: map[string]time.Time{}, agreed: map[string]outbox.Position{},
		info: server.Info{ID: server.ID{Flavor: outbox.Flavor(flavor)}},
	}
	testkit.Must(t, playThrough(way, got, flavor, tables, events))
	var out strings.Builder
	for _, txn := range got.txns {
		fmt.Fprintf(&out, "%s %v", txn.End, txn.GTID)
		for _, l := range txn.Deferred {
			fmt.Fprintf(&out, ", deferred: %s %v %d", l.Table, l.Cause, l.Rows)
		}
		out.WriteString("\n")
		for _, m := range txn.Messages {
			for i, h := range m.Headers {
				fmt.Fprintf(&out, "  %s %q\n", recordedTable.columns[i], h.Value)
			}
		}
	}
	return out.String()
}

// The logs of the servers, as recorded: the library's parser, the sieve and our own reading publish what they did when it was recorded. No server
// is needed, so that it also holds where a release cannot be installed.
func TestRecordedLogs(t *testing.T) {
	files, err := filepath.Glob("testdata/recorded/*.txt")
	testkit.Must(t, err)
	if len(files) < 5 {
		t.Fatalf("only %v", files)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			testkit.Must(t, err)
			log, want, _ := strings.Cut(string(data), "----\n")
			var flavor testkit.Flavor
			var events [][]byte
			for lines := bufio.NewScanner(strings.NewReader(log)); lines.Scan(); {
				switch line := lines.Text(); {
				case strings.HasPrefix(line, "#"):
				case flavor == "":
					flavor = testkit.Flavor(line)
				default:
					e, err := base64.StdEncoding.DecodeString(line)
					testkit.Must(t, err)
					events = append(events, e)
				}
			}
			for way := range 3 {
				if got := replayed(t, way, flavor, events); got != want {
					t.Errorf("way %d:\n%s\nwant\n%s", way, got, want)
				}
			}
			for _, key := range []string{"one", "four", "six", "seven", "eight", "nine", "last"} { // five and ten are left to the sweep
				if !strings.Contains(want, fmt.Sprintf("biz_key %q", key)) {
					t.Errorf("the row %s is not published", key)
				}
			}
			if strings.Contains(want, "gone") {
				t.Error("a row that was rolled back is published")
			}
		})
	}
}
