package canal

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Any number of roles may read one column: each gets its value, also NULL and absence.
func TestOneColumnInSeveralRoles(t *testing.T) {
	source := plainTable{name: "s.t", columns: []string{"a", "b", "A", "a", "c", "b"}}
	mt := newTableSet([]plainTable{source}, zap.NewNop()).list[0]
	tm := &replication.TableMapEvent{TableID: 1, ColumnCount: 3, ColumnType: bytes.Repeat([]byte{mysql.MYSQL_TYPE_TINY}, 3), ColumnMeta: make([]uint16, 3)}
	p := newColumnPlan(tm, []columnInfo{{name: "a"}, {name: "b"}, {name: "c"}}, mt.wanted)
	if p.fault != "" {
		t.Fatal(p.fault)
	}
	im := &images{table: mt, id: 1, columns: 3, present: []byte{0b011}, data: []byte{0b10, 7}}
	if _, err := im.walk(p, im.data, mt.row()); err != nil {
		t.Fatal(err)
	}
	for i, name := range source.columns {
		v := mt.values[i]
		switch name {
		case "a", "A":
			if string(v.Data) != "7" || v.Null || v.Absent {
				t.Errorf("value %d, of column a: %+v", i, v)
			}
		case "b":
			if !v.Null || v.Absent {
				t.Errorf("value %d, of column b, which is NULL: %+v", i, v)
			}
		case "c":
			if !v.Absent {
				t.Errorf("value %d, of column c, which the image does not have: %+v", i, v)
			}
		}
	}
}

// On real servers, with and without column names in the log. The sweep's read-back builds the same message.
func TestOneColumnInSeveralRolesOnTheFastPath(t *testing.T) {
	eachMetadata(t, func(t *testing.T, l *lab) {
		l.load(func(m *table.Mapping) {
			m.Set(table.MessageID, "biz_key")
			m.Set(table.ShardingKey, "biz_key")
			m.Set(table.Tag, "biz_type")
		})
		l.start(l.end())
		l.insert("a")
		l.caughtUp()
		sent := l.rec.sent()
		if len(sent) != 1 {
			t.Fatalf("%d messages of one row, deferred %v", len(sent), l.rec.causes())
		}
		m := sent[0]
		if m.Tag != "order" || m.BizType != "order" || m.MessageID != "a" || m.Key != "a" || m.ShardingKey != "a" {
			t.Errorf("the log gave %+v", m)
		}
		l.stop()
		if swept := l.readBack(m.Identity); !reflect.DeepEqual(content(m), content(swept)) {
			t.Errorf("the log gave   %+v\nthe sweep gave %+v", m, swept)
		}
	})
}

// readBack claims a row and reads it as the sweep does.
func (l *lab) readBack(identity outbox.Identity) *outbox.Message {
	l.t.Helper()
	ctx := context.Background()
	db, err := server.Open(server.Config{Address: l.db.Addr(), User: "root"}, nil, server.Session{Writes: true, MaxConns: 1})
	testkit.Must(l.t, err)
	defer db.Close()
	store := store.New(db, []*table.Table{l.table}, nil, nil)
	rows, err := store.States(ctx, []outbox.Identity{identity})
	testkit.Must(l.t, err)
	claim, err := store.Claim(ctx, rows)
	testkit.Must(l.t, err)
	messages, _, err := store.ReadBack(ctx, claim, []outbox.Identity{identity})
	testkit.Must(l.t, err)
	if len(messages) != 1 {
		l.t.Fatalf("%d messages read back of one row", len(messages))
	}
	return messages[0]
}

// content is what both paths must agree on: everything but the path and the fields that the claim wrote.
func content(m *outbox.Message) outbox.Message {
	c := *m
	c.Path, c.Claim, c.Status, c.Since = 0, "", 0, time.Time{}
	c.Headers = slices.Clone(c.Headers)
	return c
}
