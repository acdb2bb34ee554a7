package relay

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// Load writes transactions as applications do: one row or many, with other tables around them, some rolled back.
type Load struct {
	Table  *Table
	Ledger *Ledger
	Topics []string
	// Empty allows rows whose body is empty or NULL.
	Empty bool
	// Loose marks all rows as such; it is changed between runs only.
	Loose bool
	// Strict compares the order of rows that are changed in the transaction that inserted them too: a table with ordering: key
	// keeps it.
	Strict bool
	// Shown keeps to rows that the log shows as they are, so that none is left to a sweep.
	Shown bool

	// Name is in front of the names of the writers that Start and its like make.
	Name string
	// Around is called with each of their transactions; nil: nothing is around it.
	Around func(write func() error) error

	number atomic.Int64 // of the last row
}

// NewLoad makes the load and the application's own table.
func NewLoad(t testing.TB, table *Table, empty bool, topics ...string) *Load {
	t.Helper()
	testkit.Exec(t, table.DB, "CREATE TABLE purchase (id BIGINT AUTO_INCREMENT PRIMARY KEY, amount INT NOT NULL, note TEXT)")
	testkit.Exec(t, table.DB, "INSERT INTO purchase (amount, note) VALUES (1, 'first')")
	return &Load{Table: table, Ledger: NewLedger(), Topics: topics, Empty: empty}
}

// Writer is one application thread with keys of its own.
type Writer struct {
	load *Load
	name string
	rand *rand.Rand
}

// Writer returns a writer. The same name gives the same keys, so two of one name must not write at the same time.
func (l *Load) Writer(name string) *Writer {
	seed := uint64(l.number.Load())
	for _, c := range name {
		seed = seed*31 + uint64(c)
	}
	return &Writer{load: l, name: name, rand: rand.New(rand.NewPCG(seed, 1))}
}

const keysPerWriter = 6

// Rows makes new rows that are not written yet.
func (w *Writer) Rows(n int) []Row {
	rows := make([]Row, n)
	for i := range rows {
		number := w.load.number.Add(1)
		key := w.rand.IntN(keysPerWriter)
		r := Row{
			Key: fmt.Sprintf("%s-%d", w.name, key), BizType: fmt.Sprintf("order.%d", number),
			Topic: w.load.Topics[key%len(w.load.Topics)], Body: w.body(number), Loose: w.load.Loose,
		}
		if key%2 == 0 {
			r.ShardingKey = "shard of " + r.Key
		}
		if w.rand.IntN(2) == 0 {
			r.Tag = "created"
		}
		if w.rand.IntN(3) == 0 {
			r.Headers = map[string]string{"traceparent": fmt.Sprintf("00-%032x-01", number), "käufer": `"<名前>" & 🙂`}
		}
		r.MessageID = r.BizType + ":" + r.Key
		if w.load.Table.Preset == "order-chain" {
			r.MessageID, r.BizType = fmt.Sprintf("m-%d", number), "order"
		}
		if layout := w.load.Table.Layout; layout != nil {
			r = ofLayout(layout, int(number), r)
		}
		rows[i] = r
	}
	return rows
}

// ofLayout leaves to a row what the table of a layout has, and gives it what follows from its number there.
func ofLayout(layout *layouts.Layout, number int, r Row) Row {
	row := Row{
		MessageID: layout.MessageID(number), Key: layout.Key(number), BizType: layout.Kind(number, r.Topic), Topic: r.Topic,
		Body: append([]byte{}, r.Body...), Loose: r.Loose, Number: number,
	}
	if layout.LogOnly() {
		row.Topic = layouts.EventTopic + r.Topic
		row.Headers = map[string]string{"id": row.MessageID, "eventType": row.BizType}
	}
	return row
}

// body is of one of the kinds that have been broken somewhere: JSON whose form must not change, characters of all planes,
// control characters, bytes that are no text, empty and none, and one that does not fit into one packet.
func (w *Writer) body(number int64) []byte {
	switch kind := w.rand.IntN(20); {
	case kind == 0:
		return fmt.Appendf(nil, "Grüße, 世界, \U0001F600, e\u0301, number %d", number)
	case kind == 1:
		return fmt.Appendf(nil, "\x00\x01\x02\x1a\\'\"%%\r\n\t\x7f number %d", number)
	case kind == 2 && w.load.Empty:
		return []byte{}
	case kind == 3 && w.load.Empty:
		return nil
	case kind == 4 && number%50 == 0:
		times := 20_000
		if w.load.Table.Layout != nil {
			times = 10_000 // its column takes 65,535 bytes
		}
		return fmt.Appendf(nil, "%s %d", strings.Repeat("large ", times), number)
	case kind < 8 && w.load.Table.Preset == "order-chain":
		bytes := make([]byte, 1+w.rand.IntN(300))
		for i := range bytes {
			bytes[i] = byte(w.rand.Uint32())
		}
		return bytes
	}
	return fmt.Appendf(nil, `{"number": %d, "price":1.0, "big":1e3,  "a":{"z":1,"b":[ ]}}`, number)
}

// Run writes transactions with that many writers until at least this number of rows more is committed.
func (l *Load) Run(t testing.TB, rows, writers int) {
	t.Helper()
	l.Start(t, rows, writers)()
}

// Start is Run in the background; the function it returns waits for the end.
func (l *Load) Start(t testing.TB, rows, writers int) (wait func()) {
	t.Helper()
	target := l.Ledger.Len() + rows
	return l.start(t, writers, func() bool { return l.Ledger.Len() >= target })
}

// StartPaced is Start with a pause before each transaction, which leaves CPU for others, until the function that it returns is called.
func (l *Load) StartPaced(t testing.TB, writers int, pause time.Duration) (stop func()) {
	t.Helper()
	var enough atomic.Bool
	wait := l.start(t, writers, func() bool {
		<-time.After(pause)
		return enough.Load()
	})
	return func() {
		t.Helper()
		enough.Store(true)
		wait()
	}
}

// RunUntil writes transactions with that many writers until a point is reached.
func (l *Load) RunUntil(t testing.TB, r *Relay, p Point, writers int) {
	t.Helper()
	end := time.Now().Add(startDeadline)
	l.start(t, writers, func() bool { return r.reached(p) || !r.Running() || time.Now().After(end) })()
	if !r.reached(p) {
		t.Fatalf("the relay ended or did not come to %s within %v", p.name, startDeadline)
	}
}

func (l *Load) start(t testing.TB, writers int, enough func() bool) (wait func()) {
	t.Helper()
	var group sync.WaitGroup
	var failure atomic.Pointer[error]
	around := l.Around
	if around == nil {
		around = func(write func() error) error { return write() }
	}
	for i := range writers {
		w := l.Writer(fmt.Sprintf("%sw%d", l.Name, i))
		group.Go(func() {
			for !enough() && failure.Load() == nil {
				if err := around(func() error { return w.Transaction(t.Context()) }); err != nil {
					failure.Store(&err)
				}
			}
		})
	}
	return func() {
		t.Helper()
		group.Wait()
		if err := failure.Load(); err != nil {
			t.Fatalf("the application could not write: %v", *err)
		}
	}
}

// Transaction writes one transaction of a random kind.
func (w *Writer) Transaction(ctx context.Context) error {
	switch kind := w.rand.IntN(100); {
	case kind < 45:
		rows := w.Rows(1)
		if err := w.load.Table.Insert(ctx, w.load.Table.DB, rows...); err != nil {
			return err
		}
		w.load.Ledger.Committed(rows...)
		return nil
	case kind < 70:
		return w.In(ctx, w.load.Table.DB, true, w.multiRow)
	case kind < 85:
		return w.In(ctx, w.load.Table.DB, true, w.amongOthers)
	case kind < 92:
		return w.In(ctx, w.load.Table.DB, false, w.amongOthers)
	case kind < 96:
		_, err := w.load.Table.DB.ExecContext(ctx, "UPDATE purchase SET amount = amount + 1 WHERE id = 1")
		return err
	case w.load.Shown, w.load.Table.LogOnly(): // its rows are published as they were inserted
		return w.In(ctx, w.load.Table.DB, true, w.amongOthers)
	case kind < 99 && w.load.Table.Layout == nil: // of a row that may be on its way, or not be there at all
		_, err := w.load.Table.DB.ExecContext(ctx, "UPDATE "+w.load.Table.Name()+" SET updated_by = ? WHERE id = ?", w.name,
			1+w.rand.Int64N(w.load.number.Load()+1))
		return err
	}
	return w.In(ctx, w.load.Table.DB, true, w.Rewritten)
}

// Beginner is a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// In runs f in a transaction, commits it or rolls it back, and notes the rows that f returns if they were committed.
func (w *Writer) In(ctx context.Context, on Beginner, commit bool, f func(context.Context, *sql.Tx) ([]Row, error)) error {
	tx, err := on.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	rows, err := f(ctx, tx)
	if err != nil || !commit {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	w.load.Ledger.Committed(rows...)
	return nil
}

// multiRow is one statement with many rows.
func (w *Writer) multiRow(ctx context.Context, tx *sql.Tx) ([]Row, error) {
	rows := w.Rows(2 + w.rand.IntN(20))
	return rows, w.load.Table.Insert(ctx, tx, rows...)
}

// amongOthers writes a few rows between statements on the application's table.
func (w *Writer) amongOthers(ctx context.Context, tx *sql.Tx) ([]Row, error) {
	rows := w.Rows(2 + w.rand.IntN(4))
	for _, r := range rows {
		purchase, err := tx.ExecContext(ctx, "INSERT INTO purchase (amount, note) VALUES (?, ?)", len(r.Body), r.MessageID)
		if err != nil {
			return nil, err
		}
		id, err := purchase.LastInsertId()
		if err != nil {
			return nil, err
		}
		if err := w.load.Table.Insert(ctx, tx, r); err != nil {
			return nil, err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE purchase SET amount = 0 WHERE id = ?", id); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// Rewritten changes a row in the transaction that inserted it: only the last form may be published.
func (w *Writer) Rewritten(ctx context.Context, tx *sql.Tx) ([]Row, error) {
	row := w.Rows(1)[0]
	row.Loose = !w.load.Strict
	row.Body = []byte("first form, never to be seen")
	if err := w.load.Table.Insert(ctx, tx, row); err != nil {
		return nil, err
	}
	row.Body = []byte("last form")
	return []Row{row}, w.load.Table.SetBody(ctx, tx, row)
}
