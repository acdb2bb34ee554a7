package canal

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// histories is how many random histories a test runs.
func histories() int {
	if testing.Short() {
		return 10
	}
	return 200
}

// A26, without names in the log: random statements change the table while rows are written, with a reader that follows live or
// begins when all is done. Every row comes out with the columns that the server stored, and none is left to the sweep.
func TestA26_RandomHistories(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.SharedDatabase(t, flavor)
		poorMetadata(t, db)
		l := newLab(t, db)
		var h *history
		seed := 0
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("seed %d:\n%s", seed, strings.Join(h.done, "\n"))
			}
		})
		for seed = range histories() {
			h = &history{lab: l, rng: rand.New(rand.NewPCG(uint64(seed), 1)), columns: []string{"x0"}}
			l.rec = nil
			l.exec("DROP TABLE IF EXISTS t_local_message")
			l.exec(outboxDDL)
			if h.run(seed%2 == 0); t.Failed() {
				return
			}
		}
	})
}

// history is one series of statements.
type history struct {
	*lab
	rng     *rand.Rand
	columns []string // that the table may have besides the mapped ones
	made    int
	done    []string

	mu   sync.Mutex
	rows map[string]string // topic by key
}

func (h *history) run(live bool) {
	h.rows = map[string]string{}
	store := &memoryStore{}
	from := h.end()
	keep := func(c *Config) { c.Schemas = store }
	h.start(from, keep)
	h.row("first")
	h.published(1)
	if !live {
		h.stop()
	}
	ctx, cancel := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			h.row(fmt.Sprint("w", n))
			time.Sleep(time.Millisecond) // a pace, not a verdict
		}
	})
	for n := range 8 {
		h.step()
		h.row(fmt.Sprint("s", n))
	}
	cancel()
	writer.Wait()
	if !live {
		h.start(from, keep)
	}
	h.caughtUp()
	h.check()
	h.stop()
}

// row inserts a row with a topic of its own; while the table is away there is none.
func (h *history) row(key string) {
	topic := "orders-" + key
	_, err := h.sql.Exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', ?, ?, ?)", key, topic, "body of "+key)
	if err == nil {
		h.mu.Lock()
		h.rows[key] = topic
		h.mu.Unlock()
	}
}

// check compares what was offered with what was inserted, and with what the table has.
func (h *history) check() {
	h.t.Helper()
	if n := h.rec.causes()[outbox.CauseUnmapped]; n != 0 {
		h.t.Errorf("%d rows left to the sweep", n)
	}
	seen := map[string]*outbox.Message{}
	for _, m := range h.rec.sent() {
		seen[m.Key] = m
		if m.Topic != h.rows[m.Key] || m.BizType != "order" || string(m.Body) != "body of "+m.Key {
			h.t.Errorf("row %s came as topic %q, type %q, body %q", m.Key, m.Topic, m.BizType, m.Body)
		}
	}
	for key := range h.rows {
		if seen[key] == nil {
			h.t.Errorf("row %s is missing", key)
		}
	}
	rows, err := h.sql.Query("SELECT id, biz_key, topic, message_body FROM t_local_message")
	testkit.Must(h.t, err)
	defer rows.Close()
	for rows.Next() {
		var id, key, topic, body string
		testkit.Must(h.t, rows.Scan(&id, &key, &topic, &body))
		if m := seen[key]; m != nil && (m.Topic != topic || string(m.Body) != body || len(h.rows) == 0) {
			h.t.Errorf("row %s is %s, %s in the table and came as %+v", id, topic, body, m)
		}
	}
	testkit.Must(h.t, rows.Err())
	last := h.reader.tables.schemas.at(h.table.Name(), h.end())
	now, err := h.reader.tables.schemas.read(context.Background(), h.table.Name())
	if err == nil && (last.Table == nil || !sameDefinition(last.Table, now.Table)) {
		h.t.Errorf("followed %+v\nserver has %+v", last.Table, now.Table)
	}
}

// try runs a statement in a session; the server may refuse it.
func (h *history) try(conn *sql.Conn, query string) bool {
	_, err := conn.ExecContext(context.Background(), query)
	if err == nil || strings.Contains(err.Error(), "bad conn") || strings.Contains(err.Error(), "invalid conn") {
		h.done = append(h.done, query)
	}
	return err == nil
}

// step changes the table in one of the ways that people and tools use.
func (h *history) step() {
	ctx := context.Background()
	conn, err := h.sql.Conn(ctx)
	testkit.Must(h.t, err)
	defer conn.Close()
	switch h.rng.IntN(12) {
	case 0: // gh-ost
		h.try(conn, "CREATE /* gh-ost */ TABLE `"+h.schema+"`.`_t_local_message_gho` LIKE `"+h.schema+"`.`t_local_message`")
		h.try(conn, "ALTER /* gh-ost */ TABLE `_t_local_message_gho` "+h.clauses())
		h.try(conn, "RENAME /* gh-ost */ TABLE `t_local_message` TO `_t_local_message_del`, `_t_local_message_gho` TO `t_local_message`")
		h.try(conn, "DROP TABLE _t_local_message_del")
	case 1: // pt-online-schema-change
		var name, create string
		if err := conn.QueryRowContext(ctx, "SHOW CREATE TABLE t_local_message").Scan(&name, &create); err != nil {
			h.t.Error(err)
			return
		}
		h.try(conn, strings.Replace(create, "`t_local_message`", "`"+h.schema+"`.`_t_local_message_new`", 1))
		h.try(conn, "ALTER TABLE `_t_local_message_new` "+h.clauses())
		h.try(conn, "CREATE TRIGGER pt_osc_del AFTER DELETE ON t_local_message FOR EACH ROW DELETE IGNORE FROM _t_local_message_new WHERE id <=> OLD.id")
		h.try(conn, "RENAME TABLE `t_local_message` TO `_t_local_message_old`, `_t_local_message_new` TO `t_local_message`")
		h.try(conn, "DROP TABLE IF EXISTS `_t_local_message_old`")
	case 2:
		h.try(conn, "DROP TABLE t_local_message")
		h.try(conn, outboxDDL)
		h.columns = []string{"x0"}
	case 3: // from another database
		_, err := conn.ExecContext(ctx, "USE mysql")
		testkit.Must(h.t, err)
		h.try(conn, "ALTER TABLE "+h.schema+".t_local_message "+h.clauses())
		_, err = conn.ExecContext(ctx, "USE "+h.schema)
		testkit.Must(h.t, err)
	case 4:
		_, err := conn.ExecContext(ctx, "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
		testkit.Must(h.t, err)
		h.made++
		name := fmt.Sprint("x", h.made)
		if h.try(conn, fmt.Sprintf(`ALTER TABLE "t_local_message" ADD "%s" VARCHAR(9) COMMENT '\' FIRST`, name)) {
			h.columns = append(h.columns, name)
		}
		_, err = conn.ExecContext(ctx, "SET SESSION sql_mode = DEFAULT")
		testkit.Must(h.t, err)
	case 5:
		h.try(conn, "ALTER TABLE t_local_message /*!50000 "+h.clauses()+" */ /*!99999 , DROP topic */")
	case 6:
		h.try(conn, "TRUNCATE TABLE t_local_message")
	default:
		h.try(conn, "ALTER TABLE t_local_message "+h.clauses())
	}
}

var types = []string{
	"INT", "INT UNSIGNED", "BIGINT", "VARCHAR(64) NOT NULL DEFAULT 'it''s, (x)'", "VARCHAR(128) CHARACTER SET latin1", "LONGTEXT", "TINYINT NOT NULL DEFAULT 0", "DATETIME(3) NULL",
	"TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", "DECIMAL(10,2) DEFAULT 1.5", "ENUM('a','b,c') DEFAULT 'a'", "JSON", "VARBINARY(9)", "DOUBLE PRECISION",
	"INT GENERATED ALWAYS AS (status + 1) VIRTUAL", "INT AS (LENGTH(CONCAT(topic, ','))) STORED", "CHAR(3) COLLATE utf8mb4_bin COMMENT 'AFTER id'", "BOOL", "INT INVISIBLE",
}

// moved are the mapped columns that change places; two of each type cannot be told apart by their types.
var moved = []string{
	"biz_type VARCHAR(64) NOT NULL", "biz_key VARCHAR(64) NOT NULL", "topic VARCHAR(128) NOT NULL", "message_body LONGTEXT NOT NULL", "retry_count INT NOT NULL DEFAULT 0",
	"next_retry_time DATETIME(3) NULL", "last_exec_time DATETIME(3) NULL", "fail_reason VARCHAR(512) NULL",
}

// clauses are up to three changes of columns.
func (h *history) clauses() string {
	var out []string
	for range 1 + h.rng.IntN(3) {
		old := h.columns[h.rng.IntN(len(h.columns))]
		h.made++
		name := fmt.Sprint("x", h.made)
		typ := types[h.rng.IntN(len(types))]
		switch h.rng.IntN(9) {
		case 0, 1, 2:
			out = append(out, "ADD COLUMN `"+name+"` "+typ+h.place())
			h.columns = append(h.columns, name)
		case 3:
			out = append(out, "DROP COLUMN "+old)
			h.columns = slices.DeleteFunc(h.columns, func(c string) bool { return c == old && len(h.columns) > 1 })
		case 4:
			out = append(out, "MODIFY "+old+" "+typ+h.place())
		case 5:
			out = append(out, "CHANGE "+old+" "+name+" "+typ+h.place())
			h.columns = append(h.columns, name)
		case 6:
			out = append(out, "RENAME COLUMN "+old+" TO "+name)
			h.columns = append(h.columns, name)
		default:
			out = append(out, "modify column "+moved[h.rng.IntN(len(moved))]+h.place())
		}
	}
	list := strings.Join(out, ", ")
	if strings.Contains(list, "VIRTUAL") { // MySQL 9.7.4 crashed twice while it moved a virtual column in place and rows were written
		list += ", ALGORITHM=COPY"
	}
	return list
}

func (h *history) place() string {
	switch h.rng.IntN(3) {
	case 0:
		return " FIRST"
	case 1:
		name, _, _ := strings.Cut(moved[h.rng.IntN(len(moved))], " ")
		if h.rng.IntN(2) == 0 {
			name = h.columns[h.rng.IntN(len(h.columns))]
		}
		return " AFTER " + name
	}
	return ""
}
