package canal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/canal/definition"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/charset"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// writtenIn are texts that a character set has.
var writtenIn = map[string]string{
	"latin1": "Ärger, ñ, € and ÿ", "gbk": "订单已支付：丂狛", "gb2312": "订单・已支付", "gb18030": "订单 😀 已支付", "utf8mb3": "订单 Ärger", "utf8mb4": "订单 😀",
}

// allTexts changes the character set of every text column of a table.
func allTexts(name, set string) string {
	return "ALTER TABLE " + name + " CONVERT TO CHARACTER SET " + set
}

// A49, A48: in every character set that is supported both paths make the same message from a row, and it is what the producer wrote.
func TestA49_SameMessageInEveryCharacterSet(t *testing.T) {
	eachMetadata(t, func(t *testing.T, l *lab) {
		db, err := server.Open(server.Config{Address: l.db.Addr(), User: "root"}, nil, server.Session{Writes: true})
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, db.Close()) })
		for set, text := range writtenIn {
			if set == "gb18030" && l.db.Flavor == testkit.MariaDB {
				continue // it has no such set
			}
			l.exec("DROP TABLE t_local_message")
			l.exec(fmt.Sprintf(typedDDL, "BIGINT", "LONGTEXT", "TEXT", "DATETIME", "DATETIME(3)"))
			l.exec(allTexts("t_local_message", set))
			l.load()
			l.rec = nil
			l.start(l.end())
			const insert = "INSERT INTO t_local_message (biz_type, biz_key, topic, tag, message_body, headers) VALUES (?, ?, ?, ?, ?, ?)"
			short := string([]rune(text)[:4])
			l.exec(insert, short+"  ", "plain", "orders", "tag", "a body", `{"n": "v"}`)
			l.exec(insert, short, text, text+"/t", text, strings.Repeat(text+" ", 1000), `{"name": "`+text+`"}`)
			l.fence2()
			compare(t, l, store.New(db, []*table.Table{l.table}, nil, nil))
			m := l.rec.sent()[1]
			if m.MessageID != short+":"+text || m.Topic != text+"/t" || m.Tag != text || string(m.Body) != strings.Repeat(text+" ", 1000) || m.Headers[0].Value != text {
				t.Errorf("%s: %s", set, describe(m))
			}
			l.stop()
		}
	})
}

// A49: a text that is none in its column's set makes its own row FAILED, with the column and the place, on both paths.
func TestA49_NoTextInItsSet(t *testing.T) {
	eachMetadata(t, func(t *testing.T, l *lab) {
		db, err := server.Open(server.Config{Address: l.db.Addr(), User: "root"}, nil, server.Session{Writes: true})
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, db.Close()) })
		l.exec(allTexts("t_local_message", "gbk"))
		l.load()
		l.start(l.end())
		l.insert("a")
		l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', 'b1', 'orders', 'x'), " +
			"('order', 'b2', 'orders', _gbk x'6162D6D0A2A063'), ('order', 'b3', 'orders', '订单')")
		l.insert("c")
		l.caughtUp()
		if got := joined(l.rec.ids()); got != "1,2,4,5" || l.rec.causes()[outbox.CauseUnmapped] != 1 {
			t.Fatalf("published %s, deferred %v", got, l.rec.causes())
		}
		s := store.New(db, []*table.Table{l.table}, nil, nil)
		var id string
		testkit.Must(t, l.sql.QueryRow("SELECT id FROM t_local_message WHERE biz_key = 'b2'").Scan(&id))
		row := outbox.Identity{Table: l.table.Name(), ID: id, MessageID: "order:b2"}
		stamp, err := s.Claim(context.Background(), []outbox.Candidate{{Identity: row, Status: outbox.Pending}})
		testkit.Must(t, err)
		swept, faulty, err := s.ReadBack(context.Background(), stamp, []outbox.Identity{row})
		testkit.Must(t, err)
		if len(swept) != 0 || len(faulty) != 1 || !strings.Contains(faulty[0].Reason, "column message_body (body): its bytes from offset 4 on are no text in gbk") {
			t.Fatalf("read back %v, faulty %+v", swept, faulty)
		}
	})
}

// A49: a change of the character set while the relay runs changes no text. A set that is not supported is left to the sweep, which reads as before.
func TestA49_ChangedCharacterSet(t *testing.T) {
	eachMetadata(t, func(t *testing.T, l *lab) {
		db, err := server.Open(server.Config{Address: l.db.Addr(), User: "root"}, nil, server.Session{Writes: true})
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, db.Close()) })
		l.exec("ALTER TABLE t_local_message MODIFY COLUMN message_body LONGTEXT CHARACTER SET latin1 NOT NULL")
		l.load()
		l.start(l.end())
		s := store.New(db, []*table.Table{l.table}, nil, nil)
		for _, set := range []string{"latin1", "gbk", "utf16", "utf8mb4", "utf8mb3"} {
			l.exec("ALTER TABLE t_local_message MODIFY COLUMN message_body LONGTEXT CHARACTER SET " + set + " NOT NULL")
			l.caughtUp()
			l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', '" + set + "', 'orders', 'é')")
			l.caughtUp()
			var id string
			testkit.Must(t, l.sql.QueryRow("SELECT id FROM t_local_message WHERE biz_key = ?", set).Scan(&id))
			row := outbox.Identity{Table: l.table.Name(), ID: id, MessageID: "order:" + set}
			stamp, err := s.Claim(context.Background(), []outbox.Candidate{{Identity: row, Status: outbox.Pending}})
			testkit.Must(t, err)
			swept, _, err := s.ReadBack(context.Background(), stamp, []outbox.Identity{row})
			testkit.Must(t, err)
			if len(swept) != 1 || string(swept[0].Body) != "é" {
				t.Errorf("%s: the sweep reads %v", set, swept)
			}
		}
		for _, m := range l.rec.sent() {
			if string(m.Body) != "é" || m.Key == "utf16" {
				t.Errorf("row %s went out as %q", m.Key, m.Body)
			}
		}
		if n := l.rec.causes()[outbox.CauseUnmapped]; len(l.rec.ids())+n != 5 || n < 1 {
			t.Errorf("published %d, deferred %d", len(l.rec.ids()), n)
		}
	})
}

// A49: the collations of table maps are those of the servers.
func TestA49_Collations(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		rows, err := testkit.SharedDatabase(t, flavor).Root().Query("SELECT ID, CHARACTER_SET_NAME FROM information_schema." +
			map[testkit.Flavor]string{testkit.MySQL: "COLLATIONS", testkit.MariaDB: "COLLATION_CHARACTER_SET_APPLICABILITY"}[flavor] + " WHERE ID IS NOT NULL")
		testkit.Must(t, err)
		defer rows.Close()
		n := 0
		for ; rows.Next(); n++ {
			var id uint64
			var set string
			testkit.Must(t, rows.Scan(&id, &set))
			if set == "utf8" { // its name in MySQL 5.7
				set = "utf8mb3"
			}
			got := charsetOf(id)
			_, known := charset.Named(got)
			if _, want := charset.Named(set); known != want || want && got != set {
				t.Errorf("collation %d: %s, want %s", id, got, set)
			}
		}
		if testkit.Must(t, rows.Err()); n < 200 {
			t.Errorf("%d collations", n)
		}
	})
}

// A49: UTF-8 takes no step and no allocation more than bytes do; ASCII in another set none either.
func TestA49_UTF8CostsNothing(t *testing.T) {
	body := []byte(strings.Repeat("a text of ASCII ", 100))
	for name, want := range map[string]bool{"utf8mb4": true, "": true, "latin1": false} {
		set, _ := charset.Named(name)
		if (set == nil) != want {
			t.Errorf("%q has a step of its own: %v", name, set != nil)
		}
		c := &column{typ: 0x0f, meta: 60000, set: set}
		image := append([]byte{byte(len(body)), byte(len(body) >> 8)}, body...)
		r := &row{values: make([]table.Value, 1)}
		if n := testing.AllocsPerRun(100, func() { _ = r.set(c, image) }); n != 0 {
			t.Errorf("%q: %v allocations", name, n)
		}
		if &r.values[0].Data[0] != &image[2] {
			t.Errorf("%q: the text is a copy", name)
		}
	}
}

// A49: where a statement leaves the set to the default of the database, only ASCII is published; another text is left to the sweep.
func TestA49_UnknownCharacterSet(t *testing.T) {
	tm := &replication.TableMapEvent{ColumnCount: 2, ColumnType: []byte{mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_BLOB}, ColumnMeta: []uint16{100, 1}}
	infos, fault := namedColumns(&definition.Table{Columns: []definition.Column{{Name: "a", Type: "varchar"}, {Name: "b", Type: "tinyblob"}}}, tm)
	if fault != "" {
		t.Fatal(fault)
	}
	p := newColumnPlan(tm, infos, []string{"a", "b"})
	r := &row{values: make([]table.Value, 2)}
	for text, want := range map[string][2]error{"plain": {}, "caf\xE9": {errUnsure, nil}} {
		for i := range p.columns {
			if err := r.set(&p.columns[i], append([]byte{byte(len(text))}, text...)); !errors.Is(err, want[i]) || string(r.values[i].Data) != text {
				t.Errorf("%q in column %d: %v, %q", text, i, err, r.values[i].Data)
			}
		}
	}
}
