package adversary

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// chosen is a row that an operator has chosen.
type chosen struct {
	id        int64
	messageID string
}

// choose returns up to n of the newest rows that match a condition. Rows that the table refuses to change are left out.
func (w *world) choose(table int, where string, n int) []chosen {
	w.t.Helper()
	all, err := relay.Select(w.t.Context(), w.pool(table), func(c *chosen) []any { return []any{&c.id, &c.messageID} },
		"SELECT id, CONCAT(biz_type, ':', biz_key) FROM t_local_message WHERE biz_type NOT LIKE 'unwritable%' AND ("+where+") ORDER BY id DESC LIMIT ?", n)
	w.must(err)
	return all
}

// some returns a random choice: of rows in a random state.
func (w *world) some(table int, r *rand.Rand) []chosen {
	where := []string{"TRUE", "status IN (0, 1)", "status = 0", "status = 2", "status = 3", "retry_count > 0 AND status = 0", "status > 3"}[r.IntN(7)]
	return w.choose(table, where, 1+r.IntN(15))
}

func idsOf(rows []chosen) (ids []string) {
	for _, c := range rows {
		ids = append(ids, fmt.Sprint(c.id))
	}
	return ids
}

// command runs a command of an operator on the relay that serves a table, or on any; it may be refused.
func (w *world) command(table int, what string, f func(ctx context.Context, c *admin.Client) (any, error)) {
	i := max(w.serves(w.tables[table]), 0)
	ctx, cancel := context.WithTimeout(w.t.Context(), asking)
	defer cancel()
	result, err := f(ctx, w.relays[i].Client())
	if err != nil {
		w.say("%s on relay %d: %v", what, i, err)
		return
	}
	w.say("%s on relay %d: %+v", what, i, result)
}

func retry(republish bool) deed {
	return func(w *world, s Step, r *rand.Rand) {
		rows := w.some(s.Table, r)
		if republish {
			rows = w.choose(s.Table, "status = 2", 1+r.IntN(15))
		}
		w.retry(s.Table, rows, republish)
	}
}

func (w *world) retry(table int, rows []chosen, republish bool) {
	if len(rows) == 0 {
		return
	}
	w.touch(rows, same)
	order := operator.MessageOrder{Table: w.tables[table].FullName(), IDs: idsOf(rows), Republish: republish}
	w.command(table, "messages retry", func(ctx context.Context, c *admin.Client) (any, error) { return c.RetryMessages(ctx, order) })
}

func discard(w *world, s Step, r *rand.Rand) {
	rows := w.some(s.Table, r)
	if len(rows) == 0 {
		return
	}
	w.touch(rows, optional)
	order := operator.MessageOrder{Table: w.tables[s.Table].FullName(), IDs: idsOf(rows)}
	w.command(s.Table, "messages discard", func(ctx context.Context, c *admin.Client) (any, error) { return c.DiscardMessages(ctx, order) })
}

func checkpointSet(w *world, s Step, r *rand.Rand) {
	target := []operator.Target{{Earliest: true}, {Latest: true}, {Earliest: true}}[r.IntN(3)]
	w.command(s.Table, fmt.Sprintf("checkpoint set %+v", target), func(ctx context.Context, c *admin.Client) (any, error) { return c.SetCheckpoint(ctx, target) })
}

func pause(w *world, s Step, _ *rand.Rand) {
	w.command(s.Table, "pause", func(ctx context.Context, c *admin.Client) (any, error) {
		return c.Pause(ctx, outbox.Pause{Reason: "a drill"})
	})
}

func resume(w *world, s Step, _ *rand.Rand) {
	w.command(s.Table, "resume", func(ctx context.Context, c *admin.Client) (any, error) { return nil, c.Resume(ctx) })
}

func sweep(w *world, s Step, _ *rand.Rand) {
	w.command(s.Table, "sweep", func(ctx context.Context, c *admin.Client) (any, error) { return nil, c.Sweep(ctx) })
}

// deleteLease deletes the row of the holder, the counter, or all.
func deleteLease(w *world, _ Step, r *rand.Rand) {
	w.disturb()
	statement := []string{
		"DELETE FROM canal_outbox_lease WHERE epoch <> 0", "DELETE FROM canal_outbox_lease WHERE epoch = 0", "TRUNCATE canal_outbox_lease",
	}[r.IntN(3)]
	w.say("%s", statement)
	testkit.Exec(w.t, w.pool(0), statement)
}

// changeTables restarts a relay with other tables.
func changeTables(w *world, s Step, r *rand.Rand) {
	if w.active[relayKey(s.Relay)] != nil {
		w.say("left out: relay %d is broken already", s.Relay)
		return
	}
	w.disturb()
	list := [][]*relay.Table{w.tables, w.tables[:1], w.tables[1:], {w.tables[1], w.tables[0]}}[r.IntN(4)]
	if r.IntN(2) == 0 {
		w.relays[s.Relay].Kill()
	} else {
		w.stop(s.Relay)
	}
	w.configure(s.Relay, list)
	w.relays[s.Relay].Launch(w.t)
}

func (w *world) configure(i int, list []*relay.Table) {
	w.t.Helper()
	opts := w.options[i]
	opts.Tables, w.lists[i] = list, list
	w.relays[i].Configure(w.t, opts)
	for _, t := range list {
		w.say("relay %d has %s", i, t.FullName())
	}
}

// update changes chosen rows by hand; they may be locked.
func (w *world) update(table int, rows []chosen, change string, args ...any) {
	w.t.Helper()
	if len(rows) == 0 {
		return
	}
	statement := change + " WHERE id IN (" + strings.Join(idsOf(rows), ", ") + ")"
	conn, err := w.pool(table).Conn(w.t.Context())
	w.must(err)
	defer conn.Close()
	for _, one := range []string{"SET SESSION innodb_lock_wait_timeout = 2", statement, "SET SESSION innodb_lock_wait_timeout = DEFAULT"} {
		if one != statement {
			_, err = conn.ExecContext(w.t.Context(), one)
		} else if _, err = conn.ExecContext(w.t.Context(), one, args...); victim(err) {
			w.say("%s: %v", statement, err)
			err = nil
		}
		w.must(err)
	}
	w.say("%s %v", statement, args)
}

// setTime sets a column of rows to no time, one far away, or a near one.
func setTime(column, near string) deed {
	values := []string{"NULL", "NOW(3) - INTERVAL 1 HOUR", "NOW(3) + INTERVAL 1 HOUR", near}
	return func(w *world, s Step, r *rand.Rand) {
		rows := w.some(s.Table, r)
		w.touch(rows, same)
		w.update(s.Table, rows, "UPDATE t_local_message SET "+column+" = "+values[r.IntN(len(values))])
	}
}

func setStatus(w *world, s Step, r *rand.Rand) {
	rows := w.some(s.Table, r)
	status := []int{0, 0, 1, 2, 3, held}[r.IntN(6)]
	if status > 1 {
		w.touch(rows, optional)
	} else {
		w.touch(rows, wanted)
	}
	w.update(s.Table, rows, "UPDATE t_local_message SET status = ?", status)
}

func deleteRows(choose func(w *world, table int, r *rand.Rand) []chosen) deed {
	return func(w *world, s Step, r *rand.Rand) {
		rows := choose(w, s.Table, r)
		w.touch(rows, optional)
		w.update(s.Table, rows, "DELETE FROM t_local_message")
	}
}

func waiting(w *world, table int, r *rand.Rand) []chosen {
	return w.choose(table, "status = 0 AND retry_count > 0", 1+r.IntN(5))
}

func ofKey(w *world, table int, r *rand.Rand) []chosen {
	return w.choose(table, fmt.Sprintf("biz_key = '%s-%d'", writerName(table, "w", r.IntN(writers)), r.IntN(6)), 1<<20)
}

// truncate waits for no transaction of the application, as the table's lock would.
func truncate(w *world, s Step, _ *rand.Rand) {
	if w.active["locks"] != nil {
		return
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	w.touch(w.choose(s.Table, "TRUE", 1<<30), optional)
	w.touchUnwritable(s.Table)
	testkit.Exec(w.t, w.pool(s.Table), "TRUNCATE TABLE t_local_message")
}

func alterTable(w *world, s Step, r *rand.Rand) {
	if w.active["locks"] != nil {
		return
	}
	w.altered++
	place := []string{"FIRST", "AFTER id", "AFTER status", ""}[r.IntN(4)]
	for _, statement := range []string{
		fmt.Sprintf("ALTER TABLE t_local_message ADD COLUMN extra%d INT NULL %s", w.altered, place),
		fmt.Sprintf("ALTER TABLE t_local_message DROP COLUMN extra%d", w.altered),
	} {
		w.writing.Lock()
		testkit.Exec(w.t, w.pool(s.Table), statement)
		w.writing.Unlock()
		if r.IntN(2) == 0 {
			return // with another shape than the tables of the other relay's start
		}
	}
}

func addLargeCommit(w *world, s Step, _ *rand.Rand) {
	tx, err := w.pool(s.Table).BeginTx(w.t.Context(), nil)
	w.must(err)
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	rows := w.loads[s.Table].Writer(writerName(s.Table, "large", 0)).Rows(1500)
	w.must(w.tables[s.Table].Insert(w.t.Context(), tx, rows...))
	w.must(tx.Commit())
	w.loads[s.Table].Ledger.Committed(rows...)
}

// special is what is special about a row.
type special int

const (
	ordinary   special = iota
	poison             // no broker accepts it
	unwritable         // the table refuses to change it
	delayed            // it has a due time
)

// addRows writes rows of a special kind.
func addRows(what special) deed {
	return func(w *world, s Step, r *rand.Rand) {
		for i := range 1 + r.IntN(4) {
			w.write(s.Table, what, i, r)
		}
	}
}

// write writes one row.
func (w *world) write(table int, what special, i int, r *rand.Rand) {
	w.t.Helper()
	w.special++
	row := w.loads[table].Writer(writerName(table, "special", i)).Rows(1)[0]
	row.BizType, row.Headers = fmt.Sprintf("special.%d", w.special), nil // the number is of all tables
	due := "NULL"
	switch what {
	case poison:
		row.Topic = "orders/created ü"
		w.poison[row.BizType+":"+row.Key] = true
	case unwritable:
		row.BizType, row.Key = fmt.Sprintf("unwritable.%d", w.special), fmt.Sprintf("u-%d", w.special)
		w.unwritable[row.BizType+":"+row.Key] = true // rows of its sharding key wait for it until an operator repairs it
	case delayed:
		row.Loose = true // the rows of its key do not wait for it
		due = fmt.Sprintf("NOW(3) + INTERVAL %d SECOND", 3+r.IntN(4))
	}
	row.MessageID = row.BizType + ":" + row.Key
	_, err := w.pool(table).ExecContext(w.t.Context(), "INSERT INTO t_local_message (biz_type, biz_key, topic, tag, sharding_key, message_body, next_retry_time) "+
		"VALUES (?, ?, ?, NULLIF(?, ''), NULLIF(?, ''), ?, "+due+")", row.BizType, row.Key, row.Topic, row.Tag, row.ShardingKey, nullable(row.Body))
	w.must(err)
	w.loads[table].Ledger.Committed(row)
}

// nullable is text for a column of text.
func nullable(body []byte) any {
	if body == nil {
		return nil
	}
	return string(body)
}
