package producer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/producer"
)

// recorder replaces a transaction.
type recorder struct {
	statements []string
	args       [][]any
	err        error
}

func (r *recorder) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	r.statements, r.args = append(r.statements, query), append(r.args, args)
	return nil, r.err
}

func newTable(t testing.TB, preset producer.Preset, options producer.Options) *producer.Table {
	t.Helper()
	table, err := producer.New(preset, options)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestWhatALayoutCannotHold(t *testing.T) {
	good := producer.Message{BizType: "paid", Key: "1", Topic: "orders", Body: []byte("x")}
	for _, c := range []struct {
		name    string
		preset  producer.Preset
		options producer.Options
		change  func(m *producer.Message)
		want    string
	}{
		{"no topic", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Topic = "" }, "topic is empty"},
		{"no key", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Key = "" }, "key is empty"},
		{"nil body", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Body = nil }, "body is nil"},
		{"tag", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Tag = "vip" }, "tag is given (vip)"},
		{"headers", producer.OrderChain, producer.Options{}, func(m *producer.Message) { m.Headers = map[string]string{"a": "b"} }, "headers is given ([a])"},
		{"max_retry", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.MaxRetry = 3 }, "max_retry is given (3)"},
		{"negative max_retry", producer.OrderChain, producer.Options{}, func(m *producer.Message) { m.MaxRetry = -1 }, "max_retry is -1"},
		{"long key", producer.TLocalMessage2, producer.Options{}, func(m *producer.Message) { m.Key = strings.Repeat("ä", 65) }, "key has 65 characters, and the column `biz_key` takes 64"},
		{"long body", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Body = make([]byte, 1<<16) }, "body has 65536 bytes"},
		{"odd bytes", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Body = []byte{0xff} }, "body is not UTF-8"},
		{"odd key", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Key = "\xff" }, "key is not UTF-8"},
		{"odd header", producer.Outbox, producer.Options{}, func(m *producer.Message) { m.Headers = map[string]string{"a": "\xff"} }, `header "a" is not UTF-8`},
		{"message id of its own", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.MessageID = "m" }, `message_id "m" is given`},
		{"colon", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.BizType = "a:b" }, "has a colon"},
		{"row id", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.ID = 3 }, "id is given (3)"},
		{"no row id", producer.MessageState, producer.Options{}, func(*producer.Message) {}, "id is 0"},
		{"key beside message id", producer.LocalMessageTable, producer.Options{}, func(m *producer.Message) { m.BizType, m.MessageID = "", "m" }, `key is "1", and its column`},
		{"biz_type", producer.LocalMessageTable, producer.Options{}, func(*producer.Message) {}, "biz_type is given (paid)"},
		{"topic beside event type", producer.LocalMessage, producer.Options{}, func(*producer.Message) {}, `topic is "orders", and its column`},
		{"topic by rule", producer.LocalMessage, producer.Options{Columns: map[producer.Role]string{producer.Topic: ""}}, func(*producer.Message) {}, "tables[].topic"},
		{"no due time", producer.LocalMessage, producer.Options{}, func(m *producer.Message) { m.Topic, m.Delay = "", time.Hour }, "next_retry_time is given (1h0m0s)"},
		{"other topic", producer.DebeziumOutbox, producer.Options{}, func(*producer.Message) {}, `topic "orders" does not begin with "outbox.event."`},
		{"no UUID", producer.DebeziumOutbox, producer.Options{BinaryID: true}, func(m *producer.Message) { m.Topic, m.MessageID = "outbox.event.o", "m" }, `message_id "m" is no UUID`},
		{"negative delay", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Delay = -1 }, "delay is negative"},
		{"absurd delay", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Delay = 1e6 * time.Hour }, "more than a year"},
		{"seconds for milliseconds", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.DeliverAt = time.Unix(time.Now().UnixMilli(), 0) }, "more than a year"},
		{"before all times", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.DeliverAt = time.Unix(-1, 0) }, "deliver-at is"},
		{"two times", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Delay, m.DeliverAt = 1, time.Now() }, "one of them is enough"},
		{"column with a role", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Columns = map[string]any{"STATUS": 2} }, "column STATUS has a role"},
		{"no name", producer.TLocalMessage, producer.Options{}, func(m *producer.Message) { m.Columns = map[string]any{"": 2} }, "no name of a column"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, m, tx := newTable(t, c.preset, c.options), good, &recorder{}
			c.change(&m)
			fits := whole[c.preset].message
			_, err := table.InsertAll(t.Context(), tx, []producer.Message{fits, m})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "message 2 of 2") {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
			if len(tx.statements) > 0 {
				t.Errorf("statements were sent: %q", tx.statements)
			}
		})
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		preset  producer.Preset
		options producer.Options
		want    string
	}{
		{"no-such", producer.Options{}, "use one of [debezium-outbox"},
		{producer.OrderChain, producer.Options{Table: "shop."}, `"shop." is no name`},
		{producer.OrderChain, producer.Options{Table: strings.Repeat("a", 65)}, "is no name"},
		{producer.OrderChain, producer.Options{Columns: map[producer.Role]string{"tags": "tag"}}, `role "tags" is unknown`},
		{producer.OrderChain, producer.Options{Columns: map[producer.Role]string{producer.Tag: "a\x00"}}, "is no name"},
		{producer.OrderChain, producer.Options{Columns: map[producer.Role]string{producer.Tag: "status"}}, "two roles"},
		{producer.OrderChain, producer.Options{Columns: map[producer.Role]string{producer.Body: ""}}, "no column is mapped to body"},
		{producer.TLocalMessage, producer.Options{Columns: map[producer.Role]string{producer.Key: ""}}, "no message id"},
		{producer.OrderChain, producer.Options{TimeZone: "Asia/Shanghai"}, "no offset like +08:00"},
	} {
		if _, err := producer.New(c.preset, c.options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: %v, want %q", c.preset, c.options, err, c.want)
		}
	}
}

func TestNamesAreQuoted(t *testing.T) {
	table, tx := newTable(t, producer.OrderChain, producer.Options{
		Table: "sh`op.msg.s", Columns: map[producer.Role]string{producer.Tag: "ta`g"},
	}), &recorder{}
	_, err := table.Insert(t.Context(), tx, producer.Message{
		BizType: "a", Key: "b", Topic: "c", Tag: "d", Body: []byte("e"), Columns: map[string]any{"x`) --": 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"INSERT INTO `sh``op`.`msg.s` (", "`ta``g`", "`x``) --`"} {
		if !strings.Contains(tx.statements[0], want) {
			t.Errorf("%s is not in %s", want, tx.statements[0])
		}
	}
}

// Rows go into one statement as long as they have the same columns and the statement stays small.
func TestStatementsAreBounded(t *testing.T) {
	table := newTable(t, producer.OrderChain, producer.Options{})
	batch := func(n, size int, change func(i int, m *producer.Message)) []int {
		tx, messages := &recorder{}, make([]producer.Message, n)
		for i := range messages {
			messages[i] = producer.Message{BizType: "a", Key: fmt.Sprint(i), Topic: "c", Body: make([]byte, size)}
			if change != nil {
				change(i, &messages[i])
			}
		}
		ids, err := table.InsertAll(t.Context(), tx, messages)
		if err != nil || len(ids) != n {
			t.Fatalf("%d message ids, %v", len(ids), err)
		}
		var rows []int
		next := 0
		for i, statement := range tx.statements {
			rows = append(rows, strings.Count(statement, "NOW(3), NOW(3))"))
			for _, arg := range tx.args[i] {
				if arg == fmt.Sprint(next) {
					next++
				}
			}
		}
		if next != n {
			t.Errorf("%d rows came in order, not %d", next, n)
		}
		return rows
	}
	for _, c := range []struct {
		name string
		got  []int
		want []int
	}{
		{"many", batch(1001, 10, nil), []int{500, 500, 1}},
		{"large", batch(40, 60000, nil), []int{17, 17, 6}},
		{"none", batch(0, 0, nil), nil},
		{"other columns", batch(5, 1, func(i int, m *producer.Message) { m.MaxRetry = i / 3 * 2 }), []int{3, 2}},
		{"other times", batch(3, 1, func(i int, m *producer.Message) { m.Delay = time.Duration(i) * time.Hour }), []int{1, 2}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v rows in a statement, want %v", c.name, c.got, c.want)
		}
	}
}

func TestTheServersErrorIsKept(t *testing.T) {
	refused := errors.New("Error 1062")
	_, err := newTable(t, producer.TLocalMessage, producer.Options{}).Insert(t.Context(), &recorder{err: refused}, whole[producer.TLocalMessage].message)
	if !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
}

// RFC 9562: version 7, variant 10, the time in milliseconds in front. Later ids are greater, of many goroutines too.
func TestMessageIDsAreUUIDs(t *testing.T) {
	table, tx := newTable(t, producer.OrderChain, producer.Options{}), &recorder{}
	before := time.Now().UnixMilli()
	ids, err := table.InsertAll(t.Context(), tx, slices.Repeat([]producer.Message{{BizType: "a", Key: "b", Topic: "c", Body: []byte("d")}}, 5000))
	after := time.Now().UnixMilli()
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		var milli int64
		if _, err := fmt.Sscanf(id[:8]+id[9:13], "%x", &milli); err != nil {
			t.Fatal(err)
		}
		if len(id) != 36 || id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) || milli < before || milli > after+2 {
			t.Fatalf("%q is no UUID of version 7 of now", id)
		}
		if i > 0 && ids[i-1] >= id {
			t.Fatalf("%q does not come behind %q", id, ids[i-1])
		}
	}
}
