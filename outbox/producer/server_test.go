package producer_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox/producer"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// onBoth runs a test on each server with a schema of its own.
func onBoth(t *testing.T, test func(t *testing.T, db *sql.DB)) {
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			server := testkit.SharedDatabase(t, flavor)
			test(t, server.Connect(t, server.CreateSchema(t)))
		})
	}
}

// create makes the table of a layout under a name that has to be quoted.
func create(t *testing.T, db *sql.DB, preset producer.Preset) string {
	t.Helper()
	name := "of " + string(preset)
	ddl, known := tables[preset]
	if !known {
		var err error
		ddl, err = migrations.DDL("outbox", name)
		testkit.Must(t, err)
		testkit.Exec(t, db, ddl)
		return name
	}
	testkit.Exec(t, db, fmt.Sprintf(ddl, "`"+name+"`"))
	return name
}

// within runs f in a transaction and commits it.
func within(t *testing.T, db *sql.DB, f func(ctx context.Context, tx *sql.Tx)) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	testkit.Must(t, err)
	defer tx.Rollback()
	f(t.Context(), tx)
	testkit.Must(t, tx.Commit())
}

func count(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	testkit.Must(t, db.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

// Every layout takes a message with everything that it holds, and many at once, into the table as its owners have it.
func TestEveryLayoutTakesMessages(t *testing.T) {
	onBoth(t, func(t *testing.T, db *sql.DB) {
		for _, preset := range producer.Presets() {
			t.Run(string(preset), func(t *testing.T) {
				want := whole[preset]
				name := create(t, db, preset)
				table := newTable(t, preset, producer.Options{Table: name, Writer: "shop"})
				within(t, db, func(ctx context.Context, tx *sql.Tx) {
					id, err := table.Insert(ctx, tx, want.message)
					testkit.Must(t, err)
					var args []any
					if want.id == "" {
						args = []any{id}
					} else if id != want.id {
						t.Errorf("message id %q, want %q", id, want.id)
					}
					var n int
					testkit.Must(t, tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM `"+name+"` WHERE "+want.where, args...).Scan(&n))
					if n != 1 {
						t.Errorf("%d rows are as they should be", n)
					}
				})
				batch := make([]producer.Message, 700)
				for i := range batch {
					batch[i] = want.message
					if batch[i].Key != "" {
						batch[i].Key = fmt.Sprint("k", i)
					}
					if batch[i].MessageID != "" {
						batch[i].MessageID = fmt.Sprint("batch", i)
					}
					if batch[i].ID != 0 {
						batch[i].ID = int64(i + 1)
					}
				}
				within(t, db, func(ctx context.Context, tx *sql.Tx) {
					ids, err := table.InsertAll(ctx, tx, batch)
					if err != nil || len(ids) != len(batch) {
						t.Errorf("%d message ids, %v", len(ids), err)
					}
				})
				if n := count(t, db, "SELECT COUNT(*) FROM `"+name+"`"); n != len(batch)+1 {
					t.Errorf("%d rows", n)
				}
			})
		}
	})
}

// A message belongs to its transaction, and one that is there already is refused by the server.
func TestInsertBelongsToTheTransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, db *sql.DB) {
		name := create(t, db, producer.TLocalMessage)
		table, m := newTable(t, producer.TLocalMessage, producer.Options{Table: name}), whole[producer.TLocalMessage].message
		tx, err := db.BeginTx(t.Context(), nil)
		testkit.Must(t, err)
		_, err = table.Insert(t.Context(), tx, m)
		testkit.Must(t, err)
		testkit.Must(t, tx.Rollback())
		if n := count(t, db, "SELECT COUNT(*) FROM `"+name+"`"); n != 0 {
			t.Errorf("%d rows after the rollback", n)
		}
		_, err = table.Insert(t.Context(), db, m)
		testkit.Must(t, err)
		_, err = table.Insert(t.Context(), db, m)
		var refusal *mysql.MySQLError
		if !errors.As(err, &refusal) || refusal.Number != 1062 {
			t.Errorf("the same message again: %v", err)
		}
	})
}

// The due time is the same instant whatever the zone of the connection is, by the database's clock.
func TestDueTimes(t *testing.T) {
	at := time.Now().Add(26 * time.Hour)
	for _, c := range []struct {
		name, session, zone string // zone of Options and what the column is in; "" is the session's
	}{
		{"the connection's zone", "+08:00", ""},
		{"the table's zone", "-03:00", "+05:30"},
		{"the table's zone west", "+05:30", "-03:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, db *sql.DB) {
				db.SetMaxOpenConns(1)
				testkit.Exec(t, db, "SET time_zone = '"+c.session+"'")
				name := create(t, db, producer.TLocalMessage)
				table := newTable(t, producer.TLocalMessage, producer.Options{Table: name, TimeZone: c.zone})
				late, later := whole[producer.TLocalMessage].message, whole[producer.TLocalMessage].message
				late.Key, late.Delay = "delay", 90*time.Minute
				later.Key, later.DeliverAt = "at", at
				_, err := table.InsertAll(t.Context(), db, []producer.Message{late, later})
				testkit.Must(t, err)
				zone := c.zone
				if zone == "" {
					zone = c.session
				}
				instant := func(column, where string) (seconds int) {
					return count(t, db, "SELECT TIMESTAMPDIFF(SECOND, '1970-01-01', CONVERT_TZ("+column+", '"+zone+"', '+00:00')) FROM `"+name+"` WHERE "+where)
				}
				now := count(t, db, "SELECT UNIX_TIMESTAMP()")
				for what, far := range map[string]int{
					"created":      instant("gmt_create", "biz_key = 'at'") - now,
					"the delay":    instant("next_retry_time", "biz_key = 'delay'") - now - 90*60,
					"the set time": instant("next_retry_time", "biz_key = 'at'") - int(at.Unix()),
				} {
					if far < -30 || far > 30 { // zones differ by half an hour at least
						t.Errorf("%s is %d s off", what, far)
					}
				}
			})
		})
	}
}

// What the columns of a table have in place of those of its preset.
func TestOptionsFitOtherTables(t *testing.T) {
	onBoth(t, func(t *testing.T, db *sql.DB) {
		testkit.Exec(t, db, `CREATE TABLE events (id BINARY(16) PRIMARY KEY, aggregatetype VARCHAR(20) NOT NULL, aggregateid VARCHAR(20) NOT NULL,
			type VARCHAR(20) NOT NULL, payload BLOB NULL, tenant INT NOT NULL)`)
		events := newTable(t, producer.DebeziumOutbox, producer.Options{Table: "events", BinaryID: true, BinaryBody: true, TopicPrefix: "shop."})
		m := producer.Message{Topic: "shop.order", Key: "1", BizType: "paid", Body: []byte{0, 0xff, '\''}, Columns: map[string]any{"tenant": 7}}
		id, err := events.Insert(t.Context(), db, m)
		testkit.Must(t, err)
		var stored, body []byte
		testkit.Must(t, db.QueryRow("SELECT id, payload FROM events WHERE aggregatetype = 'order' AND tenant = 7").Scan(&stored, &body))
		if hex.EncodeToString(stored) != id || string(body) != string(m.Body) {
			t.Errorf("id %x, want %s; body %x", stored, id, body)
		}
		m.MessageID = "0190163D-8694-739B-AEA5-966C26F8AD91"
		if id, err = events.Insert(t.Context(), db, m); err != nil || id != "0190163d8694739baea5966c26f8ad91" {
			t.Errorf("message id %s, %v", id, err)
		}

		testkit.Exec(t, db, strings.NewReplacer("id BIGINT NOT NULL", "id BIGINT NOT NULL AUTO_INCREMENT", "message_body TEXT", "message_body JSON").
			Replace(fmt.Sprintf(tables[producer.MessageState], "`words`")))
		words := newTable(t, producer.MessageState, producer.Options{
			Table: "words", Pending: "待发送", Columns: map[producer.Role]string{producer.ID: ""},
		})
		_, err = words.Insert(t.Context(), db, producer.Message{BizType: "paid", Key: "1", Topic: "orders", Body: []byte("{}")})
		testkit.Must(t, err)
		if n := count(t, db, "SELECT COUNT(*) FROM words WHERE state = '待发送'"); n != 1 {
			t.Errorf("%d rows with the word", n)
		}
	})
}
