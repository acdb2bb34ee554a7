package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// D03: every completion against every state moves only what it may, and says nothing about the rest. A SENT row shows no reason
// of an earlier failure, and whatever was tried has the time of it.
func TestD03_EveryVerdictAgainstEveryState(t *testing.T) {
	moves := map[outbox.Action]map[int]int{
		outbox.ActionMarkSent: {0: 2, 1: 2, 3: 2},
		outbox.ActionRetry:    {0: 0, 1: 0},
		outbox.ActionFail:     {0: 3, 1: 3},
		outbox.ActionRelease:  {1: 0},
	}
	const stamp = "2026-01-02 03:04:05.678"
	onBoth(t, "outbox", func(b *bench) {
		for completion, allowed := range moves {
			for _, status := range []int{0, 1, 2, 3, 9} {
				id := b.Insert(1, fmt.Sprintf("status=%d, retry_count=4, last_exec_time='%s', fail_reason='earlier'", status, stamp))[0]
				if left := b.apply(outbox.Completion{Identity: id, Action: completion, RetryCount: 4, Claim: stamp, Reason: "why"}); len(left) > 0 {
					b.Errorf("%v on %d: unwritable %+v", completion, status, left)
				}
				want, moved := allowed[status]
				if !moved {
					want = status
				}
				count, reason, tried := 4, "earlier", 0
				if moved && completion == outbox.ActionRetry {
					count = 5
				}
				switch {
				case moved && counted(completion):
					reason, tried = "why", 1
				case moved && completion == outbox.ActionMarkSent:
					reason, tried = "NULL", 1
				}
				b.Want(id, fmt.Sprintf("%d|%d|%s|%d", want, count, reason, tried), "status", "retry_count", "fail_reason",
					"last_exec_time > NOW() - INTERVAL 1 MINUTE")
			}
		}
	})
}

// Where the column of the reason takes no NULL, a SENT row has an empty one.
func TestSentRowsWithAReasonThatIsNotNull(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY fail_reason VARCHAR(1024) NOT NULL DEFAULT ''")
		b.Load(b.Mapping("outbox"))
		id := b.Insert(1, "status=3, fail_reason='earlier'")[0]
		if left := b.apply(outbox.Completion{Identity: id, Action: outbox.ActionMarkSent}); len(left) > 0 {
			b.Errorf("unwritable: %+v", left)
		}
		b.Want(id, "2|", "status", "fail_reason")
	})
}

// A28: a row that has the id but not the message id of a completion is another row; so is one with another retry count
// or another stamp, where these are the guard.
func TestA28_ReusedIDsAreLeftAlone(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		id := b.Insert(1, "status=1, retry_count=2, last_exec_time='2026-01-02 03:04:05.678'")[0]
		other, upper := id, id
		other.MessageID, upper.MessageID = "order:key-999", "order:KEY-1"
		gone := outbox.Identity{Table: id.Table, ID: "18446744073709551000", MessageID: id.MessageID}
		for _, s := range []outbox.Completion{
			{Identity: other, Action: outbox.ActionMarkSent},
			{Identity: upper, Action: outbox.ActionMarkSent},
			{Identity: gone, Action: outbox.ActionMarkSent},
			{Identity: id, Action: outbox.ActionRetry, RetryCount: 1},
			{Identity: id, Action: outbox.ActionFail, RetryCount: 3},
			{Identity: id, Action: outbox.ActionRelease, Claim: "2026-01-02 03:04:05.679"},
		} {
			if left := b.apply(s); len(left) > 0 {
				b.Errorf("%+v: %+v", s, left)
			}
			b.Want(id, "1|2|NULL", "status", "retry_count", "updated_by")
		}
	})
}

// A28 on a table whose collation takes upper and lower case for the same, and trailing spaces for none.
func TestA28_IdentityIsComparedByteByByte(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			b := newBench(t, flavor)
			b.Create("order-chain")
			testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
			b.LoadAsIs(b.Mapping("order-chain"))
			testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" SET message_id='M-1', business_type='o', business_id='1', topic='t', message_body='', create_time=NOW(), update_time=NOW()")
			id := outbox.Identity{Table: b.table.Name(), ID: "1", MessageID: "M-1"}
			for _, wrong := range []string{"m-1", "M-1 ", "Ḿ-1", ""} {
				w := id
				w.MessageID = wrong
				b.apply(outbox.Completion{Identity: w, Action: outbox.ActionMarkSent})
				b.Want(id, "0", "status")
				found, err := b.store.States(b.Ctx, []outbox.Identity{w})
				if err != nil || len(found) != 0 {
					b.Errorf("%q is taken for the row: %+v, %v", wrong, found, err)
				}
			}
			const stamp = "2026-01-02 03:04:05"
			testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=1, update_time='"+stamp+"'")
			for mine, n := range map[outbox.Identity]int{id: 1, {Table: id.Table, ID: id.ID, MessageID: "m-1"}: 0} {
				if messages, _, err := b.store.ReadBack(b.Ctx, stamp, []outbox.Identity{mine}); err != nil || len(messages) != n {
					b.Errorf("%v: read %d rows back, %v", mine, len(messages), err)
				}
			}
			b.apply(outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
			b.Want(id, "2", "status")
		})
	}
}

// Message ids hold any text; nothing of it is taken for SQL.
func TestMessageIDsOfAnyText(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" ADD message_id VARCHAR(64) UNIQUE NULL, DROP INDEX uk_message")
		m := b.Mapping("outbox")
		m.Set(table.MessageID, "message_id")
		b.Load(m)
		for _, text := range []string{`it's`, `a\b`, "line\nbreak", "snow ☃ and 🚚", `"; DROP TABLE outbox; --`, "%_?"} {
			result, err := b.DB.Exec("INSERT INTO "+b.Quoted+" (message_id, biz_type, biz_key, topic) VALUES (?, 'o', '1', 't')", text)
			testkit.Must(b, err)
			n, err := result.LastInsertId()
			testkit.Must(b, err)
			id := outbox.Identity{Table: b.table.Name(), ID: fmt.Sprint(n), MessageID: text}
			found, err := b.store.States(b.Ctx, []outbox.Identity{id})
			if err != nil || len(found) != 1 {
				b.Fatalf("%q: %+v, %v", text, found, err)
			}
			b.apply(outbox.Completion{Identity: id, Action: outbox.ActionFail, Reason: text})
			b.Want(id, "3|"+text, "status", "fail_reason")
		}
	})
}

// D15, P8: rows that the table refuses to write harm only themselves, and the statement is split to find them.
func TestD15_UnwritableRowsAreFound(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(700)
		testkit.Exec(b, b.DB, "CREATE TRIGGER refuse BEFORE UPDATE ON "+b.Quoted+" FOR EACH ROW "+
			"IF NEW.id IN ("+ids[3].ID+", "+ids[640].ID+") THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF")
		var batch []outbox.Completion
		for _, id := range ids {
			batch = append(batch, outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
		}
		left := b.apply(batch...)
		if len(left) != 2 || left[0].Identity != ids[3] || left[1].Identity != ids[640] || !strings.Contains(left[0].Reason, "not this one") {
			b.Fatalf("unwritable: %+v", left)
		}
		var sent int
		testkit.Must(b, b.DB.QueryRow("SELECT COUNT(*) FROM "+b.Quoted+" WHERE status = 2").Scan(&sent))
		if sent != 698 {
			b.Errorf("%d rows sent", sent)
		}
	})
}

// Two rows of one statement that stand under each other's ids by now are other rows: id and message id are compared as a pair.
func TestTheGuardIsAPair(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.Insert(3, "")
		swapped := []outbox.Identity{ids[0], ids[1]}
		swapped[0].MessageID, swapped[1].MessageID = ids[1].MessageID, ids[0].MessageID
		if refused := b.apply(completion(swapped[0]), completion(swapped[1]), completion(ids[2])); len(refused) > 0 {
			b.Fatalf("refused: %+v", refused)
		}
		b.Want(ids[0], "0", "status")
		b.Want(ids[1], "0", "status")
		b.Want(ids[2], "2", "status")
	})
}

func completion(id outbox.Identity) outbox.Completion {
	return outbox.Completion{Identity: id, Action: outbox.ActionMarkSent}
}

// A completion of a table that is no longer mapped blocks nothing.
func TestUnknownTableIsReported(t *testing.T) {
	s := New(nil, nil, nil, nil)
	left, err := s.Apply(context.Background(), []outbox.Completion{{Identity: outbox.Identity{Table: "a.b", ID: "1"}}})
	if err != nil || len(left) != 1 || !strings.Contains(left[0].Reason, "not mapped") {
		t.Fatalf("%+v, %v", left, err)
	}
}

// A35: an acknowledgement that overtakes the commit of its row does not take the row for gone: it is handed back until the row is visible.
func TestA35_RowNotYetVisible(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		id := outbox.Identity{Table: b.table.Name(), ID: "77", MessageID: "order:key-77"}
		tx, err := b.DB.Begin()
		testkit.Must(b, err)
		_, err = tx.Exec("INSERT INTO " + b.Quoted + " SET id=77, biz_type='order', biz_key='key-77', topic='orders'")
		testkit.Must(b, err)
		sent := outbox.Completion{Identity: id, Action: outbox.ActionMarkSent}
		if left := b.apply(sent); len(left) != 1 || !left[0].Retryable {
			b.Fatalf("handed back %+v", left)
		}
		testkit.Must(b, tx.Commit())
		if left := b.apply(sent); len(left) != 0 {
			b.Fatalf("handed back %+v", left)
		}
		b.Want(id, "2", "status")
	})
}

// lockWaits counts how often a statement has begun to wait for a row lock. INNODB_TRX would not do: it is not refreshed
// while it is polled.
func (b *bench) lockWaits() (n int) {
	b.Helper()
	var name string
	testkit.Must(b, b.DB.QueryRow("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'").Scan(&name, &n))
	return n
}

// patient gives the store n connections that wait for a lock without a limit. Their usual limit is a second, which may pass on a
// busy machine before the lock is released.
func (b *bench) patient(n int) {
	b.Helper()
	b.store.db.SetMaxOpenConns(n)
	b.store.db.SetMaxIdleConns(n)
	for range n {
		conn, err := b.store.db.Conn(b.Ctx)
		testkit.Must(b, err)
		defer conn.Close() // when all have it
		_, err = conn.ExecContext(b.Ctx, "SET SESSION innodb_lock_wait_timeout = 50")
		testkit.Must(b, err)
	}
}

// A35: what an update did not match is looked at under a lock. A row that another session is changing is neither settled nor left: it is held,
// until that session has ended; then the look shows what it leaves.
func TestA35_LockingReadDecides(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.Insert(2, "status=9")
		tx, err := b.DB.Begin()
		testkit.Must(b, err)
		_, err = tx.Exec("UPDATE " + b.Quoted + " SET status=0 WHERE id = " + ids[0].ID)
		testkit.Must(b, err)
		rows := []outbox.Completion{{Identity: ids[0]}, {Identity: ids[1]}}
		left, held, err := b.store.remaining(b.Ctx, b.table, rows)
		testkit.Must(b, err)
		if len(left) != 0 || len(held) != 1 || held[0].Identity != ids[0] {
			b.Errorf("left %+v, held %+v", left, held)
		}
		testkit.Must(b, tx.Commit())
		left, held, err = b.store.remaining(b.Ctx, b.table, rows)
		testkit.Must(b, err)
		if len(left) != 1 || left[0].Identity != ids[0] || len(held) != 0 {
			b.Errorf("left %+v, held %+v", left, held)
		}
	})
}

// D06, D07: acknowledgements, claims and retries at once with an application at REPEATABLE READ: none of its statements
// fails, and every row ends as SENT.
func TestD06_StormHarmsNoApplication(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		const writers, each = 3, 60
		var wg sync.WaitGroup
		ready := make(chan []outbox.Identity, writers*each)
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					ids, err := b.business(fmt.Sprintf("w%d-%d", w, i))
					if err != nil {
						b.Errorf("the application's transaction: %v", err)
					}
					ready <- ids
				}
			})
		}
		stop := make(chan struct{})
		var sweeps sync.WaitGroup
		sweeps.Go(func() { b.sweepUntil(stop) })
		for range writers * each {
			var batch []outbox.Completion
			for _, id := range <-ready {
				batch = append(batch, outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
			}
			if left, err := b.store.Apply(b.Ctx, batch); err != nil || len(left) > 0 {
				b.Errorf("apply: %v, %+v", err, left)
			}
		}
		wg.Wait()
		close(stop)
		sweeps.Wait()
		var unsent int
		testkit.Must(b, b.DB.QueryRow("SELECT COUNT(*) FROM "+b.Quoted+" WHERE status <> 2").Scan(&unsent))
		if unsent > 0 {
			b.Errorf("%d rows are not sent", unsent)
		}
	})
}

// business is a transaction of an application: three messages.
func (b *bench) business(name string) ([]outbox.Identity, error) {
	tx, err := b.DB.BeginTx(b.Ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	var ids []outbox.Identity
	for i := range 3 {
		key := fmt.Sprintf("%s-%d", name, i)
		result, err := tx.Exec("INSERT INTO "+b.Quoted+" SET biz_type='order', biz_key=?, topic='orders', message_body='{}'", key)
		if err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		n, err := result.LastInsertId()
		if err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		ids = append(ids, outbox.Identity{Table: b.table.Name(), ID: fmt.Sprint(n), MessageID: "order:" + key})
	}
	return ids, tx.Commit()
}

func (b *bench) sweepUntil(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		page, _, err := b.store.Due(b.Ctx, b.table.Name(), table.Cursor{}, table.DueQuery{Limit: 20})
		if err != nil {
			b.Errorf("due: %v", err)
			return
		}
		if len(page) == 0 {
			continue
		}
		if _, err := b.store.Claim(b.Ctx, page); err != nil {
			b.Errorf("claim: %v", err)
			return
		}
	}
}
