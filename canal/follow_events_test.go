package canal

import (
	"context"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/canal/definition"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

const eventDDL = "CREATE TABLE app_event (id CHAR(36) NOT NULL PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL, " +
	"type VARCHAR(255) NOT NULL, payload JSON NULL) DEFAULT CHARSET utf8mb4"

// namelessEvents is a lab with a table without a status on a server whose log has no column names.
func namelessEvents(t *testing.T, flavor testkit.Flavor) *lab {
	t.Helper()
	db := testkit.SharedDatabase(t, flavor)
	poorMetadata(t, db)
	l := newLab(t, db)
	l.exec(eventDDL)
	m, err := table.Preset("debezium-outbox")
	testkit.Must(t, err)
	m.Schema, m.Name = l.schema, "app_event"
	tbl, findings, err := table.Load(context.Background(), l.sql, m)
	testkit.Must(t, err)
	if tbl == nil {
		t.Fatalf("the table does not fit: %v", findings)
	}
	l.table = tbl
	return l
}

// event inserts a row whose three texts of one type differ.
func (l *lab) event(id string) {
	l.t.Helper()
	l.exec("INSERT INTO app_event (id, aggregatetype, aggregateid, type, payload) VALUES (?, 'orders', ?, 'Created', '{}')", id, "k-"+id)
}

// events waits for rows in order and compares each with what was inserted.
func (l *lab) events(ids ...string) {
	l.t.Helper()
	l.wait("the events "+strings.Join(ids, ","), func() bool { return len(l.rec.ids()) >= len(ids) })
	if got := joined(l.rec.ids()); got != strings.Join(ids, ",") {
		l.t.Errorf("published %s, want %s", got, strings.Join(ids, ","))
	}
	for _, m := range l.rec.sent() {
		if m.Topic != "outbox.event.orders" || m.Key != "k-"+m.ID || m.BizType != "Created" {
			l.t.Errorf("row %s came as topic %q, key %q, type %q", m.ID, m.Topic, m.Key, m.BizType)
		}
	}
}

// notUnderstood changes the table with a statement whose text is in a character set that is not read.
func (l *lab) notUnderstood(change string) {
	l.t.Helper()
	l.session("SET NAMES sjis", "ALTER TABLE app_event "+change+" COMMENT '\x83\x5c'")
}

const swapped = "MODIFY aggregateid VARCHAR(255) NOT NULL FIRST"

// A26: a table without a status, on a server without column names. Its rows are read from a position before the first look at the
// server, after statements in the log, and after one that is not understood when no other changes the table behind it. Between two
// such statements rows stop the reader.
func TestA26_TableWithoutAStatusAndNames(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := namelessEvents(t, flavor)
		from := l.end()
		l.event("a")
		l.start(from) // a take-over: no version of the position is known
		l.event("b")
		l.events("a", "b")
		l.exec("ALTER TABLE app_event " + swapped)
		l.event("c")
		l.notUnderstood("ADD x INT")
		l.event("d")
		l.events("a", "b", "c", "d")
		l.stop()

		l.rec = nil
		from = l.end()
		store := &memoryStore{}
		l.start(from, func(c *Config) { c.Schemas = store })
		l.caughtUp()
		l.stop()
		l.event("e")
		l.exec("ALTER TABLE app_event MODIFY aggregateid VARCHAR(255) NOT NULL AFTER type, ADD y INT FIRST")
		l.event("f")
		l.start(from, func(c *Config) { c.Schemas = store })
		l.events("e", "f")
		l.stop()
		l.notUnderstood("MODIFY type VARCHAR(255) NOT NULL FIRST, ADD z INT")
		l.event("g")
		after := l.end()
		l.exec("ALTER TABLE app_event " + swapped)
		l.launch(from, func(c *Config) { c.Schemas = store })
		l.wait("the reader to stop", func() bool {
			s := l.reader.State().Stuck
			return s != nil && strings.Contains(s.Cause, "columns cannot be named")
		})
		if got := joined(l.rec.ids()); got != "e,f,e,f" {
			t.Errorf("published %s", got)
		}
		l.event("h")
		l.stop()
		l.rec = nil
		l.start(after, func(c *Config) { c.Schemas = store }) // an operator gives up the row
		l.events("h")
	})
}

// MariaDB can log an ALTER TABLE twice, when it begins and when it has taken effect: it is followed once.
func TestA26_AlterInTwoPhases(t *testing.T) {
	db := testkit.SharedMariaDB(t)
	poorMetadata(t, db)
	l := newLab(t, db)
	store := &memoryStore{}
	keep := func(c *Config) { c.Schemas = store }
	from := l.end()
	l.start(from, keep)
	l.caughtUp()
	l.stop()
	conn := l.session("SET SESSION binlog_alter_two_phase = 1", "ALTER TABLE t_local_message ADD x INT FIRST")
	l.insert("a")
	l.on(conn, "ALTER TABLE t_local_message MODIFY topic VARCHAR(128) NOT NULL FIRST, DROP x")
	l.insert("b")
	l.start(from, keep)
	if got := joined(l.published(2)); got != "a,b" || l.rec.causes()[outbox.CauseUnmapped] != 0 {
		t.Fatalf("published %s, deferred %v", got, l.rec.causes())
	}
	for _, m := range l.rec.sent() {
		if m.Topic != "orders" || string(m.Body) != "body of "+m.Key {
			t.Errorf("row %s came as %+v", m.Key, m)
		}
	}
}

// After a failover the definitions at the checkpoint hold on the other server, whose positions differ.
func TestA26_DefinitionsMoveWithAFailover(t *testing.T) {
	columns := &definition.Table{Columns: []definition.Column{{Name: "id", Type: "int"}}}
	older := &definition.Table{Columns: []definition.Column{{Name: "id", Type: "bigint"}}}
	at := func(offset uint64) outbox.Position { return outbox.Position{File: "b.000007", Offset: offset} }
	before, now := server.ID{Flavor: outbox.MySQL, UUID: "a"}, server.ID{Flavor: outbox.MySQL, UUID: "b"}
	s := &schemaVersions{known: map[string][]schemaVersion{"shop.t": {{Source: before, From: at(10), Table: older}, {Source: before, From: at(50), Table: columns}}}}
	s.info.ID = now
	testkit.Must(t, s.move(at(49)))
	if v := s.at("shop.t", outbox.Position{}); v.Table != older || v.Source != now {
		t.Errorf("at the checkpoint %+v", v)
	}
	s.info.ID = before
	testkit.Must(t, s.move(outbox.Position{}))
	if len(s.known) != 0 {
		t.Errorf("versions of another server are kept: %v", s.known)
	}
}
