package canal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// plainTable copies the values that it gets.
type plainTable struct {
	name    string
	columns []string
}

func (p plainTable) Name() string { return p.name }

func (p plainTable) LogOnly() bool { return false }

func (p plainTable) Reads() []table.Column {
	out := make([]table.Column, len(p.columns))
	for i := range out {
		out[i] = table.Column(i)
	}
	return out
}

func (p plainTable) ColumnName(c table.Column) string { return p.columns[c] }

func (p plainTable) Message(values []table.Value) (*outbox.Message, error) {
	m := &outbox.Message{Identity: outbox.Identity{Table: p.name}}
	for _, v := range values {
		m.Headers = append(m.Headers, outbox.Header{Value: string(v.Data)})
	}
	if len(values) > 0 {
		m.ID, m.Body = string(values[0].Data), bytes.Clone(values[len(values)-1].Data)
	}
	return m, nil
}

// FuzzDecodeRow feeds arbitrary table maps and row images: rows are returned or deferred, and nothing else happens.
func FuzzDecodeRow(f *testing.F) {
	f.Add([]byte{mysql.MYSQL_TYPE_LONGLONG, mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_BLOB}, []byte{0, 0, 100, 0, 4, 0}, []byte{7},
		[]byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 'h', 'i', 1, 0, 0, 0, 'x'})
	f.Add([]byte{mysql.MYSQL_TYPE_DATETIME2, mysql.MYSQL_TYPE_TIMESTAMP2, mysql.MYSQL_TYPE_JSON}, []byte{3, 0, 6, 0, 4, 0}, []byte{7},
		[]byte{0, 0x99, 0xb2, 0, 0, 0, 1, 2, 0x60, 0, 0, 0, 1, 2, 3, 2, 0, 0, 0, 4, 1})
	f.Add([]byte{mysql.MYSQL_TYPE_STRING, mysql.MYSQL_TYPE_NEWDECIMAL, mysql.MYSQL_TYPE_BIT}, []byte{255, 254, 10, 30, 3, 1}, []byte{5}, []byte{0, 1, 'a', 9})
	f.Fuzz(func(t *testing.T, types, meta, present, data []byte) {
		tm := &replication.TableMapEvent{TableID: 1, ColumnCount: uint64(len(types)), ColumnType: types}
		infos, source := make([]columnInfo, len(types)), plainTable{name: "s.t"}
		for i := range types {
			var m [2]byte
			if 2*i < len(meta) {
				copy(m[:], meta[2*i:])
			}
			tm.ColumnMeta = append(tm.ColumnMeta, binary.LittleEndian.Uint16(m[:]))
			infos[i] = columnInfo{name: fmt.Sprint("c", i), unsigned: m[0]&1 != 0, charset: []string{"", "utf8mb4", "binary", "latin1", "gbk", "gb18030", "ucs2"}[m[1]%7]}
			source.columns = append(source.columns, infos[i].name)
		}
		r := newTableSet([]plainTable{source}, zap.NewNop())
		mt := r.list[0]
		mt.plan = newColumnPlan(tm, infos, mt.wanted)
		im := &images{table: mt, id: 1, columns: len(types), present: present, data: data, received: time.Unix(1, 0)}
		n := im.count()
		msgs, unmapped := im.messages(nil)
		if len(msgs) > n || len(msgs)+unmapped > n+1 {
			t.Fatalf("%d messages and %d unmapped of %d rows", len(msgs), unmapped, n)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte{1, 1, 0x80, 4, 5, 2, 'i', 'd', 1, 't', 2, 3, 0xfc, 0xff, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := parseMetadata(data); err != nil {
			return
		}
		if _, err := optionalMetadata(data, &replication.TableMapEvent{Schema: []byte("a"), Table: []byte("b"), ColumnCount: 3}); err != nil {
			return
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte{4, 1})
	f.Add([]byte{2, 1, 0, 9, 0, 12, 7, 0, 1, 'x'})
	f.Add([]byte{0, 1, 0, 14, 0, 11, 0, 1, 0, 5, 7, 0, 'k'})
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := jsonText(data, nil)
		if err == nil && !json.Valid(text) {
			t.Fatalf("%x gave %s", data, text)
		}
	})
}

func TestA25_AbsentIsNotNull(t *testing.T) {
	source := plainTable{name: "s.t", columns: []string{"a", "b", "c"}}
	mt := newTableSet([]plainTable{source}, zap.NewNop()).list[0]
	tm := &replication.TableMapEvent{TableID: 1, ColumnCount: 3, ColumnType: bytes.Repeat([]byte{mysql.MYSQL_TYPE_TINY}, 3), ColumnMeta: make([]uint16, 3)}
	p := newColumnPlan(tm, []columnInfo{{name: "A"}, {name: "b"}, {name: "c", unsigned: true}}, mt.wanted)
	im := &images{table: mt, id: 1, columns: 3, present: []byte{0b101}, data: []byte{0b01, 0xfe}}
	if _, err := im.walk(p, im.data, mt.row()); err != nil {
		t.Fatal(err)
	}
	if !mt.values[0].Null || mt.values[0].Absent || !mt.values[1].Absent || string(mt.values[2].Data) != "254" {
		t.Fatalf("values %+v", mt.values)
	}
}
