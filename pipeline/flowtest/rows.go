package flowtest

import (
	"fmt"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// UUID is that of the server whose log is shown.
const UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

// End is where the n-th transaction of the log ends.
func End(n uint64) outbox.Position { return outbox.Position{File: "binlog.000001", Offset: 100 * n} }

// Row is a row of the table shop.t.
func Row(id int, change ...func(*outbox.Message)) *outbox.Message {
	m := &outbox.Message{
		Identity: outbox.Identity{Table: "shop.t", ID: fmt.Sprint(id), MessageID: fmt.Sprint("m", id)},
		Topic:    "orders", Partition: outbox.NoPartition, MaxRetry: -1, Body: []byte("x"),
	}
	for _, c := range change {
		c(m)
	}
	return m
}

// RowsFrom makes n rows of about size bytes each.
func RowsFrom(first, n, size int) []*outbox.Message {
	rows := make([]*outbox.Message, n)
	for i := range rows {
		rows[i] = Row(first+i, func(m *outbox.Message) { m.Body = make([]byte, size) })
	}
	return rows
}

// Key gives a row a key.
func Key(name string) func(*outbox.Message) {
	return func(m *outbox.Message) { m.Key, m.ShardingKey = name, name }
}

// In puts a row into another table.
func In(table string) func(*outbox.Message) { return func(m *outbox.Message) { m.Table = table } }

// LogOnly is a row of a table without a status.
func LogOnly(m *outbox.Message) { m.Table, m.LogOnly = "shop.f", true }

// Always answers each message alike.
func Always(o outbox.Outcome) func(*outbox.Message) outbox.Outcome {
	return func(*outbox.Message) outbox.Outcome { return o }
}

// Of answers the rows with these ids by an outcome, and takes all others.
func Of(o outbox.Outcome, ids ...string) func(*outbox.Message) outbox.Outcome {
	return func(m *outbox.Message) outbox.Outcome {
		if slices.Contains(ids, m.ID) {
			return o
		}
		return outbox.Outcome{}
	}
}
