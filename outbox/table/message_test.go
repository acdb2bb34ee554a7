package table

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// described is a table of a preset as a server would describe it.
func described(t testing.TB, preset string) (Mapping, description) {
	t.Helper()
	m, err := Preset(preset)
	if err != nil {
		t.Fatal(err)
	}
	m.Schema, m.Name = "shop", "outbox"
	d := description{
		found: true, schema: "shop", name: "outbox", engine: "InnoDB", zone: time.FixedZone("+08:00", 8*3600), zoneKnown: true,
		indexes: []Index{
			{Name: "PRIMARY", unique: true, Columns: []string{"id"}},
			{Name: "uk", unique: true, Columns: []string{"biz_type", "biz_key"}},
			{Name: "uk2", unique: true, Columns: []string{"message_id"}},
			{Name: "idx", Columns: []string{"status", "next_retry_time"}},
		},
	}
	for role, name := range m.Columns {
		c := ColumnType{Name: name, Nullable: true, fallback: Value{Null: true}}
		switch allowed[role][0] {
		case KindInteger:
			c.DataType, c.fullType = "bigint", "bigint"
		case kindShort:
			c.DataType, c.fullType, c.Charset, c.Characters, c.Octets = "varchar", "varchar(100)", "utf8mb4", 100, 400
		case kindLong:
			c.DataType, c.fullType, c.Charset = "longtext", "longtext", "utf8mb4"
		case KindTime:
			c.DataType, c.fullType, c.Fraction = "datetime", "datetime(3)", 3
		}
		d.columns = append(d.columns, c)
	}
	return m, d
}

func (d *description) of(name string) *ColumnType {
	for i := range d.columns {
		if d.columns[i].Name == name {
			return &d.columns[i]
		}
	}
	return &ColumnType{}
}

func Bound(t testing.TB, preset string, change func(*Mapping, *description)) *Table {
	t.Helper()
	m, d := described(t, preset)
	if change != nil {
		change(&m, &d)
	}
	table, findings := bind(m, d)
	if table == nil {
		t.Fatalf("findings %+v", findings)
	}
	return table
}

// Values is a row: what is not given is NULL.
func Values(t *Table, row map[Column]string) []Value {
	out := make([]Value, len(t.reads))
	for i, role := range t.reads {
		text, ok := row[role]
		out[i] = Value{Data: []byte(text), Null: !ok}
	}
	return out
}

func order() map[Column]string {
	return map[Column]string{
		ID: "18446744073709551000", BizType: "order", Key: "42", Topic: "orders", Body: `{"a":1.0}`, StatusCode: "0", RetryCount: "3",
	}
}

func TestMessageOfARow(t *testing.T) {
	table := Bound(t, "outbox", nil)
	row := order()
	row[Tag], row[ShardingKey], row[MaxRetry] = "paid", "customer-7", "9"
	row[Headers] = `{"trace" : "a\u0000b", "n": 1.50, "nested": {"x": [1, 2]}, "none": null, "trace":"again"}`
	row[NextRetryTime], row[CreatedAt] = "2026-01-02 03:04:05.678", "2026-01-02 03:04:05"
	m, err := table.Message(Values(table, row))
	if err != nil {
		t.Fatal(err)
	}
	if m.Identity != (outbox.Identity{Table: "shop.outbox", ID: "18446744073709551000", MessageID: "order:42"}) {
		t.Errorf("identity %+v", m.Identity)
	}
	if m.Topic != "orders" || m.Tag != "paid" || m.Key != "42" || m.ShardingKey != "customer-7" || m.BizType != "order" ||
		string(m.Body) != `{"a":1.0}` || m.Partition != outbox.NoPartition {
		t.Errorf("message %+v", m)
	}
	if m.Status != outbox.Pending || m.RetryCount != 3 || m.MaxRetry != 9 {
		t.Errorf("state %v %d %d", m.Status, m.RetryCount, m.MaxRetry)
	}
	want := []outbox.Header{{Name: "trace", Value: "a\x00b"}, {Name: "n", Value: "1.50"}, {Name: "nested", Value: `{"x":[1,2]}`}, {Name: "none", Value: "null"}, {Name: "trace", Value: "again"}}
	if len(m.Headers) != len(want) {
		t.Fatalf("headers %+v", m.Headers)
	}
	for i := range want {
		if m.Headers[i] != want[i] {
			t.Errorf("header %+v, want %+v", m.Headers[i], want[i])
		}
	}
	due := time.Date(2026, 1, 1, 19, 4, 5, 678e6, time.UTC)
	if !m.DueAt.Equal(due) || !m.CreatedAt.Equal(due.Truncate(time.Second)) {
		t.Errorf("due %v, created %v", m.DueAt, m.CreatedAt)
	}
}

func TestMessageDefaults(t *testing.T) {
	table := Bound(t, "outbox", nil)
	row := order()
	delete(row, Body)
	delete(row, RetryCount)
	m, err := table.Message(Values(table, row))
	if err != nil {
		t.Fatal(err)
	}
	if m.Body != nil || m.ShardingKey != "42" || m.Headers != nil || m.MaxRetry != -1 || m.RetryCount != 0 || !m.DueAt.IsZero() || !m.CreatedAt.IsZero() {
		t.Errorf("message %+v", m)
	}
	row[Body], row[NextRetryTime], row[ShardingKey] = "", "0000-00-00 00:00:00.000", ""
	if m, err = table.Message(Values(table, row)); err != nil {
		t.Fatal(err)
	}
	if m.Body == nil || len(m.Body) != 0 || !m.DueAt.IsZero() || m.ShardingKey != "42" {
		t.Errorf("an empty body is not NULL, the zero date is no due time: %+v", m)
	}
	for code, want := range map[string]outbox.Status{"1": outbox.Sending, "2": outbox.Sent, "3": outbox.Failed, "4": outbox.Held, "": outbox.Held} {
		row[StatusCode] = code
		if m, err = table.Message(Values(table, row)); err != nil || m.Status != want {
			t.Errorf("code %q: %v, %v", code, m.Status, err)
		}
	}
}

func TestMessageRefusesWhatItCannotPublish(t *testing.T) {
	table := Bound(t, "outbox", func(_ *Mapping, d *description) { d.of("id").Unsigned = true })
	const canary = "canary"
	for name, change := range map[string]func(map[Column]string){
		"no topic":      func(r map[Column]string) { r[Topic] = "" },
		"NULL topic":    func(r map[Column]string) { delete(r, Topic) },
		"no key":        func(r map[Column]string) { delete(r, Key) },
		"no type":       func(r map[Column]string) { r[BizType] = "" },
		"negative id":   func(r map[Column]string) { r[ID] = "-616" },
		"headers":       func(r map[Column]string) { r[Headers] = `{"` + canary + `":` },
		"header list":   func(r map[Column]string) { r[Headers] = `["` + canary + `"]` },
		"two headers":   func(r map[Column]string) { r[Headers] = `{} {"` + canary + `":1}` },
		"due":           func(r map[Column]string) { r[NextRetryTime] = canary },
		"short due":     func(r map[Column]string) { r[NextRetryTime] = "2026-01-02" },
		"retry count":   func(r map[Column]string) { r[RetryCount] = canary },
		"created":       func(r map[Column]string) { r[CreatedAt] = "2026-01-02T03:04:05" },
		"long fraction": func(r map[Column]string) { r[NextRetryTime] = "2026-01-02 03:04:05.1234567" },
	} {
		row := order()
		change(row)
		if m, err := table.Message(Values(table, row)); err == nil {
			t.Errorf("%s: taken as %+v", name, m)
		} else if strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "shop.outbox") {
			t.Errorf("%s: the error shows a value or hides the table: %v", name, err)
		}
	}
	if _, err := table.Message(nil); err == nil {
		t.Error("no values are taken")
	}
}

// A25: what a narrow row image leaves out has its constant default; what has none is not guessed.
func TestA25_AbsentColumns(t *testing.T) {
	table := Bound(t, "outbox", func(_ *Mapping, d *description) {
		d.of("status").fallback = Value{Absent: true}
		d.of("max_retry").fallback = Value{Data: []byte("7")}
		d.of("tag").fallback = Value{Absent: true}
		d.of("created_at").fallback = Value{Absent: true}
	})
	absent := func(roles ...Column) (*outbox.Message, error) {
		row := Values(table, order())
		for _, role := range roles {
			row[table.at[role]] = Value{Absent: true}
		}
		return table.Message(row)
	}
	m, err := absent(StatusCode, RetryCount, MaxRetry, NextRetryTime, CreatedAt, Headers)
	if err != nil {
		t.Fatal(err)
	}
	if m.Status != outbox.Pending || m.RetryCount != 0 || m.MaxRetry != 7 || !m.DueAt.IsZero() {
		t.Errorf("message %+v", m)
	}
	for _, role := range []Column{ID, Topic, Body, BizType, Key, Tag} {
		if role == BizType || role == Key {
			table.columns[role].fallback = Value{Absent: true}
		}
		if m, err := absent(role); err == nil {
			t.Errorf("%v is not known and the message is %+v", role, m)
		}
	}
	table.columns[StatusCode].fallback = Value{Data: []byte("8")} // rows begin as drafts
	if m, err = absent(StatusCode); err != nil || m.Status != outbox.Held {
		t.Errorf("%v, %v", m, err)
	}
}

func TestMessageIDForms(t *testing.T) {
	chain := Bound(t, "order-chain", nil)
	row := map[Column]string{ID: "1", MessageID: "m\x00\xff", BizType: "t", Key: "42", Topic: "orders", Body: "x", StatusCode: "0"}
	m, err := chain.Message(Values(chain, row))
	if err != nil || m.MessageID != "m\x00\xff" || m.Key != "42" || m.BizType != "t" {
		t.Errorf("%+v, %v", m, err)
	}
	bare := Bound(t, "outbox", func(_ *Mapping, d *description) { d.indexes = append(d.indexes[:1:1], d.indexes[3]) })
	if m, err = bare.Message(Values(bare, order())); err != nil || m.MessageID != "order:42:18446744073709551000" {
		t.Errorf("%+v, %v", m, err)
	}
}

// The message owns what it holds: the values may be reused by the reader.
func TestMessageOwnsItsBytes(t *testing.T) {
	table := Bound(t, "outbox", nil)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(1, 20, 60)
		row := map[Column]string{
			ID: "7", BizType: text.Draw(t, "type"), Key: text.Draw(t, "key"), Topic: text.Draw(t, "topic"),
			Tag: text.Draw(t, "tag"), ShardingKey: text.Draw(t, "sharding"), StatusCode: "0",
			Body: string(rapid.SliceOf(rapid.Byte()).Draw(t, "body")),
		}
		v := Values(table, row)
		m, err := table.Message(v)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v {
			copy(v[i].Data, bytes.Repeat([]byte{0xEE}, len(v[i].Data)))
		}
		if m.BizType != row[BizType] || m.Key != row[Key] || m.Topic != row[Topic] || m.Tag != row[Tag] || m.ID != "7" ||
			m.ShardingKey != row[ShardingKey] || string(m.Body) != row[Body] || m.MessageID != row[BizType]+":"+row[Key] {
			t.Fatalf("%+v of %+v", m, row)
		}
	})
}

func TestMessageAllocations(t *testing.T) {
	table := Bound(t, "outbox", nil)
	row := order()
	row[Tag], row[NextRetryTime], row[CreatedAt] = "paid", "2026-01-02 03:04:05.678", "2026-01-02 03:04:05.678"
	v := Values(table, row)
	n := testing.AllocsPerRun(100, func() {
		if _, err := table.Message(v); err != nil {
			t.Error(err)
		}
	})
	if n > 3 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMessage(b *testing.B) {
	table := Bound(b, "outbox", nil)
	row := order()
	row[Body], row[NextRetryTime] = strings.Repeat("x", 500), "2026-01-02 03:04:05.678"
	v := Values(table, row)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := table.Message(v); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzParseHeaders(f *testing.F) {
	f.Add([]byte(`{"a":"b","c":1}`))
	f.Add([]byte(`{"a":{"b":[null]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		headers, err := parseHeaders(data)
		if err != nil && headers != nil {
			t.Fatal("headers in addition to an error")
		}
	})
}

func TestFitCutsAtCharacters(t *testing.T) {
	for _, c := range []struct {
		column   ColumnType
		in, want string
	}{
		{ColumnType{Characters: 3, Octets: 12, Charset: "utf8mb4"}, "äöüß", "äöü"},
		{ColumnType{Characters: 255, Octets: 5, Charset: "utf8mb4"}, "ääää", "ää"},
		{ColumnType{Characters: 9, Octets: 27, Charset: "utf8mb3"}, "a🚚b", "a?b"},
		{ColumnType{Characters: 9, Octets: 9, Charset: "ascii"}, "aäb", "a?b"},
		{ColumnType{Characters: 9, Octets: 36, Charset: "utf8mb4"}, "a\xffb", "a?b"},
		{ColumnType{Characters: 9, Octets: 9, Charset: "latin1"}, "aé中€\u0081", "aé?€\u0081"},
		{ColumnType{Characters: 9, Octets: 5, Charset: "gbk"}, "é中😀中", "é中?"},
		{ColumnType{Characters: 9, Octets: 6, Charset: "gb18030"}, "中😀中", "中😀"},
		{ColumnType{}, "any", "any"},
	} {
		if got := c.column.Fit(c.in); got != c.want {
			t.Errorf("%+v: %q, want %q", c.column, got, c.want)
		}
	}
}

// G09: with ordering: key a due time needs a column for the attempts, which tell a refused row from one that its producer delays.
func TestG09_OrderedTableWithADueTimeNeedsAttempts(t *testing.T) {
	for _, c := range []struct {
		due, attempts, refused bool
	}{{true, true, false}, {true, false, true}, {false, false, false}, {false, true, false}} {
		m, d := described(t, "outbox")
		m.Ordered = true
		if !c.due {
			m.Set(NextRetryTime, "")
		}
		if !c.attempts {
			m.Set(RetryCount, "")
		}
		table, findings := bind(m, d)
		said := fmt.Sprintf("%+v", findings)
		if (table == nil) != c.refused || strings.Contains(said, "no column for the attempts. A relay that takes over") != c.refused {
			t.Errorf("due time %v, attempts %v: %s", c.due, c.attempts, said)
		}
	}
}
