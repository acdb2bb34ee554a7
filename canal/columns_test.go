package canal

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// setGlobal changes a variable of the shared server for one test.
func setGlobal(t *testing.T, db *testkit.Database, name, value string) {
	t.Helper()
	var before string
	testkit.Must(t, db.Root().QueryRow("SELECT @@GLOBAL."+name).Scan(&before))
	set := func(value string) {
		if _, err := strconv.Atoi(value); err != nil {
			value = "'" + value + "'"
		}
		testkit.Exec(t, db.Root(), fmt.Sprintf("SET GLOBAL %s = %s", name, value))
	}
	set(value)
	t.Cleanup(func() { set(before) })
}

// poorMetadata sets the flavor's default: no column names in the log. MySQL 5.7 has nothing else.
func poorMetadata(t *testing.T, db *testkit.Database) {
	t.Helper()
	switch {
	case db.Flavor == testkit.MariaDB:
		setGlobal(t, db, "binlog_row_metadata", "NO_LOG")
	case !db.Before(8, 0):
		setGlobal(t, db, "binlog_row_metadata", "MINIMAL")
	}
}

// memoryStore is a SchemaStore in memory.
type memoryStore struct {
	mu    sync.Mutex
	blobs map[string][]byte
}

func (m *memoryStore) Save(table string, blob []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blobs == nil {
		m.blobs = map[string][]byte{}
	}
	if len(blob) == 0 {
		delete(m.blobs, table)
	} else {
		m.blobs[table] = blob
	}
	return nil
}

func (m *memoryStore) All() (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string][]byte{}
	for name, blob := range m.blobs {
		out[name] = blob
	}
	return out, nil
}

func eachMetadata(t *testing.T, test func(t *testing.T, l *lab)) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		for _, poor := range []bool{false, true} {
			t.Run(map[bool]string{false: "names", true: "no_names"}[poor], func(t *testing.T) {
				if !poor {
					flavor = testkit.Needs(t, flavor, "8.0", "column names in its log")
				}
				db := testkit.SharedDatabase(t, flavor)
				if poor {
					poorMetadata(t, db)
				}
				test(t, newLab(t, db))
			})
		}
	})
}

func TestA24_UnsignedIDs(t *testing.T) {
	eachMetadata(t, func(t *testing.T, l *lab) {
		l.start(l.end())
		l.exec("INSERT INTO t_local_message (id, biz_type, biz_key, topic, message_body) VALUES (18446744073709551000, 'order', 'a', 'orders', 'x')")
		l.published(1)
		if id := l.rec.ids()[0]; id != "18446744073709551000" {
			t.Fatalf("id %s", id)
		}
	})
}

// A25: columns with defaults are not in a MINIMAL image of an INSERT that does not name them.
func TestA25_RowImages(t *testing.T) {
	eachMetadata(t, func(t *testing.T, l *lab) {
		l.start(l.end())
		for _, image := range []string{"FULL", "MINIMAL", "NOBLOB"} {
			conn, err := l.sql.Conn(context.Background())
			testkit.Must(t, err)
			_, err = conn.ExecContext(context.Background(), "SET SESSION binlog_row_image = '"+image+"'")
			testkit.Must(t, err)
			_, err = conn.ExecContext(context.Background(), insertRow, image, "body of "+image)
			testkit.Must(t, err)
			testkit.Must(t, conn.Close())
		}
		if got := joined(l.published(3)); got != "FULL,MINIMAL,NOBLOB" {
			t.Fatalf("published %s", got)
		}
		for _, m := range l.rec.sent() {
			if m.Status != outbox.Pending || m.RetryCount != 0 || string(m.Body) != "body of "+m.Key {
				t.Errorf("image %s gave %+v", m.Key, m)
			}
		}
	})
}

// A26: rows written before, between and after changes of the columns, all read afterwards.
func TestA26_ColumnsChangeWhileReading(t *testing.T) {
	eachMetadata(t, func(t *testing.T, l *lab) {
		from := l.end()
		store := &memoryStore{}
		l.start(from, func(c *Config) { c.Schemas = store })
		l.insert("a")
		l.published(1)
		l.stop()
		l.insert("b")
		l.exec("ALTER TABLE t_local_message ADD COLUMN extra VARCHAR(64) NOT NULL DEFAULT 'orders' FIRST")
		l.insert("c")
		// Same number and types of columns in another order: only the names or the range of validity differ.
		l.exec("ALTER TABLE t_local_message MODIFY COLUMN biz_key VARCHAR(64) NOT NULL FIRST")
		l.insert("d")
		l.start(from, func(c *Config) { c.Schemas = store })
		l.caughtUp()
		l.insert("e")
		l.caughtUp()
		l.wait("row e", func() bool {
			ids := l.rec.ids()
			return len(ids) > 0 && ids[len(ids)-1] == "5"
		})
		for _, m := range l.rec.sent() {
			if m.Topic != "orders" || m.BizType != "order" || string(m.Body) != "body of "+m.Key || m.MessageID != "order:"+m.Key {
				t.Errorf("row %s came out as %+v", m.ID, m)
			}
		}
		published, deferred := map[string]bool{}, l.rec.causes()[outbox.CauseUnmapped]
		for _, id := range l.rec.ids() {
			published[id] = true
		}
		if len(published)+deferred < 5 {
			t.Errorf("published %v, deferred %d: a row is missing", published, deferred)
		}
		if deferred > 0 && strings.HasSuffix(t.Name(), "/names") {
			t.Errorf("%d rows deferred though the log names the columns", deferred)
		}
	})
}

// A26: two columns of one type swap places while the stream is open. Number and types do not change.
func TestA26_ColumnsChangePlaces(t *testing.T) {
	eachMetadata(t, func(t *testing.T, l *lab) {
		l.start(l.end(), func(c *Config) { c.Schemas = &memoryStore{} })
		l.insert("a")
		l.exec("ALTER TABLE t_local_message MODIFY COLUMN biz_type VARCHAR(64) NOT NULL AFTER biz_key")
		l.insert("b")
		l.caughtUp()
		l.insert("c")
		l.wait("row c", func() bool { return slices.Contains(l.rec.ids(), "3") })
		for _, m := range l.rec.sent() {
			if m.BizType != "order" || string(m.Body) != "body of "+m.Key {
				t.Errorf("row %s came out as type %s, key %s", m.ID, m.BizType, m.Key)
			}
		}
		if n := len(l.rec.ids()) + l.rec.causes()[outbox.CauseUnmapped]; n != 3 {
			t.Errorf("%d rows published or deferred", n)
		}
	})
}

// Without names in the log a restart reads its recovery window with the stored version.
func TestStoredColumnVersionServesTheCatchUp(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.SharedDatabase(t, flavor)
		poorMetadata(t, db)
		l := newLab(t, db)
		store := &memoryStore{}
		from := l.end()
		l.start(from, func(c *Config) { c.Schemas = store })
		l.insert("a")
		l.published(1)
		l.stop()
		l.insert("b")
		l.start(from, func(c *Config) { c.Schemas = store })
		if got := joined(l.published(3)); got != "a,a,b" {
			t.Fatalf("published %s", got)
		}
		l.stop()
		// Without the store the columns at the time of the recovery window are unknown.
		l.rec = nil
		l.start(from)
		l.caughtUp()
		if got := l.rec.ids(); len(got) != 0 || l.rec.causes()[outbox.CauseUnmapped] != 2 {
			t.Fatalf("published %v, deferred %v", got, l.rec.causes())
		}
		l.insert("c")
		l.published(1)
	})
}

// A23: a version of another server is not used for positions of this one.
func TestStoredColumnVersionOfAnotherServerIsNotUsed(t *testing.T) {
	db := testkit.SharedMariaDB(t)
	poorMetadata(t, db)
	l := newLab(t, db)
	from := l.end()
	l.insert("a")
	s := &schemaVersions{db: l.sql, known: map[string][]schemaVersion{}}
	var err error
	s.info, err = server.Inspect(context.Background(), l.sql)
	testkit.Must(t, err)
	v, err := s.read(context.Background(), l.table.Name())
	testkit.Must(t, err)
	v.Source.ServerID++
	v.From = outbox.Position{File: from.File, Offset: 4}
	store := &memoryStore{}
	s.store = store
	testkit.Must(t, s.save(l.table.Name(), []schemaVersion{v}))
	l.start(from, func(c *Config) { c.Schemas = store })
	l.caughtUp()
	if got := l.rec.causes()[outbox.CauseUnmapped]; got != 1 {
		t.Fatalf("%d rows deferred, %v published", got, l.rec.ids())
	}
}

// A27: an online schema change copies the rows into a shadow table and swaps the names.
func TestA27_ShadowTableIsForeign(t *testing.T) {
	eachMetadata(t, func(t *testing.T, l *lab) {
		l.start(l.end())
		l.insert("a")
		l.exec("CREATE TABLE _t_local_message_gho LIKE t_local_message")
		l.exec("ALTER TABLE _t_local_message_gho ADD COLUMN extra INT NOT NULL DEFAULT 7 FIRST")
		l.exec("INSERT INTO _t_local_message_gho SELECT 7, t.* FROM t_local_message t")
		l.exec("RENAME TABLE t_local_message TO _t_local_message_del, _t_local_message_gho TO t_local_message")
		l.caughtUp()
		l.insert("b")
		if got := joined(l.published(2)); got != "a,b" {
			t.Fatalf("published %s", got)
		}
		l.caughtUp()
		if n := len(l.rec.ids()); n != 2 {
			t.Fatalf("%d messages of 2 rows", n)
		}
	})
}

// A61: many rows in one event and one statement.
func TestA61_ManyRowsInOneStatement(t *testing.T) {
	eachMetadata(t, func(t *testing.T, l *lab) {
		l.start(l.end())
		const n = 3000
		args := make([]any, 0, 2*n)
		for i := range n {
			args = append(args, fmt.Sprint("k", i), strings.Repeat("x", i%50))
		}
		query := "INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES " +
			strings.TrimSuffix(strings.Repeat("('order', ?, 'orders', ?),", n), ",")
		l.exec(query, args...)
		keys := l.published(n)
		sent := l.rec.sent()
		for i, key := range keys {
			if key != fmt.Sprint("k", i) || len(sent[i].Body) != i%50 {
				t.Fatalf("row %d is %s with %d bytes", i, key, len(sent[i].Body))
			}
		}
	})
}

// A27: with lower_case_table_names=1 the log has lower-case names, whatever the configuration says.
func TestA27_LowerCaseTableNames(t *testing.T) {
	l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB, Args: []string{"--lower-case-table-names=1"}}))
	l.start(l.end())
	l.exec("INSERT INTO T_Local_Message (biz_type, biz_key, topic, message_body) VALUES ('order', 'a', 'orders', 'x')")
	if got := joined(l.published(1)); got != "a" {
		t.Fatalf("published %s", got)
	}
}

// Rows above 16 MiB come in several packets.
func TestRowOfManyPackets(t *testing.T) {
	l := newLab(t, testkit.SharedMySQL(t))
	l.start(l.end())
	l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', 'a', 'orders', CONCAT('<', REPEAT('x', 40000000), '>'))")
	l.published(1)
	if body := l.rec.sent()[0].Body; len(body) != 40000002 || body[0] != '<' || body[len(body)-1] != '>' {
		t.Fatalf("body of %d bytes", len(body))
	}
}

// A18: a transaction with more bytes of mapped tables than the limit is deferred whole; the next one is offered.
func TestA18_OversizeTransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start(l.end(), func(c *Config) { c.MaxTransactionBytes = 50_000 })
		tx, err := l.sql.Begin()
		testkit.Must(t, err)
		for i := range 100 {
			_, err := tx.Exec(insertRow, fmt.Sprint("k", i), strings.Repeat("x", 1000))
			testkit.Must(t, err)
		}
		testkit.Must(t, tx.Commit())
		l.insert("after")
		if got := joined(l.published(1)); got != "after" || l.rec.causes()[outbox.CauseOversize] != 100 {
			t.Fatalf("published %s, deferred %v", got, l.rec.causes())
		}
	})
}
