package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

const days = 24 * time.Hour

var (
	sentWeek  = table.Expiry{Status: outbox.Sent, Age: 7 * days}
	sentMoves = table.Expiry{Status: outbox.Sent, Age: 7 * days, Into: table.ArchiveSuffix}
	logged    = table.Expiry{Status: outbox.Failed, Age: 30 * days, Into: table.FailedSuffix}
)

// ids of all rows of the table with that end of its name, in order.
func (b *bench) ids(suffix string) (all []string) {
	b.Helper()
	rows, err := b.DB.Query("SELECT id FROM outbox" + suffix + " ORDER BY id")
	testkit.Must(b, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		testkit.Must(b, rows.Scan(&id))
		all = append(all, id)
	}
	testkit.Must(b, rows.Err())
	return all
}

func (b *bench) walkAll(of ...table.Expiry) (ids [][]string, pages int) {
	b.Helper()
	ids = make([][]string, len(of))
	for at := ""; ; {
		page, err := b.store.Expired(b.Ctx, b.table.Name(), at, of)
		testkit.Must(b, err)
		for i := range of {
			ids[i] = append(ids[i], page.IDs[i]...)
		}
		pages++
		if at = page.Next; page.Done {
			return ids, pages
		}
	}
}

func (b *bench) expire(e table.Expiry, ids []string) table.Left {
	b.Helper()
	left, err := b.store.Expire(b.Ctx, b.table.Name(), e, ids)
	testkit.Must(b, err)
	return left
}

func keys(list []outbox.Identity) (out []string) {
	for _, one := range list {
		out = append(out, one.ID)
	}
	return out
}

// Only SENT and FAILED rows of that age are shown and leave; what changed since it was shown stays.
func TestD19_OnlyOldFinalRowsLeave(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		old := ", created_at=NOW(3) - INTERVAL 50 DAY, updated_at=NOW(3) - INTERVAL 45 DAY, last_exec_time=NOW(3) - INTERVAL 40 DAY"
		sent := b.Insert(3, "status=2"+old)
		failed := b.Insert(2, "status=3"+old)
		for _, set := range []string{
			"status=0" + old, "status=1" + old, "status=9" + old, // not final, and not ours
			"status=2, created_at=NOW(3) - INTERVAL 50 DAY, last_exec_time=NOW(3) - INTERVAL 6 DAY", // sent again lately
			"status=3, created_at=NOW(3) - INTERVAL 50 DAY, last_exec_time=NOW(3) - INTERVAL 29 DAY",
			"status=2, created_at=NOW(3) - INTERVAL 50 DAY", // its age is that of updated_at
		} {
			b.Insert(1, set)
		}
		noStamp := b.Insert(1, "status=2, created_at=NOW(3) - INTERVAL 50 DAY, updated_at=NOW(3) - INTERVAL 8 DAY") // the application has sent it
		ids, pages := b.walkAll(sentWeek, logged)
		if want := keys(append(sent, noStamp...)); !slices.Equal(ids[0], want) || !slices.Equal(ids[1], keys(failed)) || pages != 1 {
			b.Fatalf("shown %v on %d pages, want %v and %v", ids, pages, want, keys(failed))
		}
		// An operator sets one back, another is sent again: they stay, though they were shown.
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=0 WHERE id="+sent[0].ID)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET last_exec_time=NOW(3) WHERE id="+sent[1].ID)
		if left := b.expire(sentWeek, ids[0]); left.Rows != 2 || left.Skipped != 2 || left.Refused != 0 {
			b.Errorf("%+v", left)
		}
		for _, id := range []outbox.Identity{sent[2], noStamp[0]} {
			if slices.Contains(b.ids(""), id.ID) {
				b.Errorf("%s is there", id.ID)
			}
		}
		if n := len(b.ids("")); n != 10 {
			b.Errorf("%d rows stay, want 10", n)
		}
	})
}

// A table of another zone, and TIMESTAMP columns, are compared with the clock of their own zone.
func TestAgesInOtherZones(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			b := newBench(t, flavor)
			b.Create("outbox")
			testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY created_at TIMESTAMP(3) NULL")
			m := b.Mapping("outbox")
			m.Set(table.UpdatedAt, "")
			m.TimeZone = "+11:00"
			b.Load(m)
			const here = "CONVERT_TZ(UTC_TIMESTAMP(3), '+00:00', '+11:00')"
			gone := b.Insert(1, "status=2, created_at=NOW(3), last_exec_time="+here+" - INTERVAL 61 MINUTE")
			gone = append(gone, b.Insert(1, "status=2, created_at=NOW(3) - INTERVAL 61 MINUTE")...)
			b.Insert(1, "status=2, created_at=NOW(3) - INTERVAL 2 HOUR, last_exec_time="+here+" - INTERVAL 59 MINUTE")
			b.Insert(1, "status=2, created_at=NOW(3) - INTERVAL 59 MINUTE")
			ids, _ := b.walkAll(table.Expiry{Status: outbox.Sent, Age: time.Hour})
			if !slices.Equal(ids[0], keys(gone)) {
				b.Errorf("shown %v, want %v", ids[0], keys(gone))
			}
			var seconds int64
			testkit.Must(b, b.DB.QueryRow("SELECT FLOOR(TIME_TO_SEC(TIME("+here+")))").Scan(&seconds))
			at, err := b.store.TimeOfDay(b.Ctx, b.table.Name())
			testkit.Must(b, err)
			if off := (int64(at/time.Second) - seconds + 86400) % 86400; off > 60 {
				b.Errorf("the time of day is %v, want about %ds", at, seconds)
			}
		})
	}
}

// The walk goes by the primary key, page by page, and ends where rows are too young.
func TestTheWalkEndsWhereRowsAreYoung(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.InsertMany(4500)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=2, created_at=NOW(3) - INTERVAL IF(id <= 1500, 8, 2) DAY, updated_at=created_at")
		ids, pages := b.walkAll(sentWeek)
		if len(ids[0]) != 1500 || pages != 3 {
			b.Errorf("%d rows on %d pages, want 1500 on 3: the third one has young rows only", len(ids[0]), pages)
		}
		plan, err := server.Show(b.Ctx, b.DB, "EXPLAIN FORMAT=TRADITIONAL "+b.table.walkByKey("17", []table.Expiry{sentWeek, logged}).String(), b.table.walkByKey("17", []table.Expiry{sentWeek, logged}).Args...)
		testkit.Must(b, err)
		if plan[0]["key"] != "PRIMARY" || plan[0]["type"] != "range" || strings.Contains(plan[0]["extra"], "filesort") {
			b.Errorf("the plan is %v", plan)
		}
		if left := b.expire(sentWeek, ids[0][:500]); left.Rows != 500 {
			b.Errorf("%+v", left)
		}
		if _, err := b.store.Expire(b.Ctx, b.table.Name(), sentWeek, ids[0][:501]); err == nil {
			b.Error("more than 500 rows were taken")
		}
	})
}

// Many rows leave next to one that is locked, and most of the table's: a server that reads all rows for that would wait.
func TestD19_MostRowsLeaveBesideALockedOne(t *testing.T) {
	for _, flavor := range append(testkit.Flavors(), testkit.MariaDB118) {
		on(t, flavor, "outbox", func(b *bench) {
			b.MakeMoved(table.ArchiveSuffix)
			const n, locked = 900, 16
			ids := keys(b.Insert(n, "status=2, last_exec_time=NOW(3) - INTERVAL 8 DAY, created_at=NOW(3) - INTERVAL 8 DAY"))
			tx, err := b.DB.Begin()
			testkit.Must(b, err)
			_, err = tx.Exec("SELECT id FROM " + b.Quoted + " WHERE id = " + ids[locked] + " FOR UPDATE")
			testkit.Must(b, err)
			if left := b.expire(sentMoves, ids[n/2:]); left.Rows != n/2 {
				b.Errorf("the half without it: %+v", left)
			}
			if left := b.expire(sentWeek, ids[:n/2]); left.Rows != n/2-1 || left.Skipped != 1 {
				b.Errorf("the half with it: %+v", left)
			}
			testkit.Must(b, tx.Rollback())
		})
	}
}

// A row that the application has locked is skipped at once, and the other old rows leave.
func TestD19_LockedRowsStay(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.MakeMoved(table.ArchiveSuffix)
		ids := keys(b.Insert(10, "status=2, last_exec_time=NOW(3) - INTERVAL 8 DAY, created_at=NOW(3) - INTERVAL 8 DAY"))
		tx, err := b.DB.Begin()
		testkit.Must(b, err)
		for _, id := range []string{ids[2], ids[7]} {
			_, err = tx.Exec("SELECT id FROM " + b.Quoted + " WHERE id = " + id + " FOR UPDATE")
			testkit.Must(b, err)
		}
		if left := b.expire(sentWeek, ids[:5]); left.Rows != 4 || left.Skipped != 1 {
			b.Errorf("deleted: %+v", left)
		}
		if left := b.expire(sentMoves, ids[5:]); left.Rows != 4 || left.Skipped != 1 {
			b.Errorf("moved: %+v", left)
		}
		testkit.Must(b, tx.Rollback())
		if got := b.ids(""); !slices.Equal(got, []string{ids[2], ids[7]}) {
			b.Errorf("%v stay", got)
		}
		if left := b.expire(sentMoves, ids); left.Rows != 2 || left.Skipped != 8 {
			b.Errorf("later: %+v", left)
		}
	})
}

// What moves is the whole row, as it was; the log of FAILED rows also says when.
func TestD19_MovedRowsAreWhole(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.MakeMoved(table.ArchiveSuffix)
		b.MakeMoved(table.FailedSuffix)
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" ADD COLUMN doubled INT AS (retry_count * 2) STORED, ADD COLUMN later VARCHAR(20) NULL")
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted[:len(b.Quoted)-1]+"_archive` ADD COLUMN doubled INT AS (retry_count * 2) STORED, ADD COLUMN later VARCHAR(20) NULL")
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted[:len(b.Quoted)-1]+"_failed` ADD COLUMN later VARCHAR(30) NULL")
		old := ", created_at='2026-01-01 01:02:03.456', last_exec_time='2026-01-02 01:02:03.456', updated_at='2026-01-03 01:02:03.456', " +
			"retry_count=3, headers='{\"a\":\"b\"}', later='x'"
		sent, failed := b.Insert(2, "status=2"+old), b.Insert(1, "status=3, fail_reason='too large'"+old)
		show := "SELECT GROUP_CONCAT(id, biz_type, biz_key, topic, IFNULL(tag, 'NULL'), headers, HEX(message_body), status, retry_count, " +
			"created_at, last_exec_time, updated_at, IFNULL(fail_reason, ''), later ORDER BY id) FROM outbox%s WHERE id IN (%s)"
		look := func(suffix string, ids []outbox.Identity) (text string) {
			testkit.Must(b, b.DB.QueryRow(fmt.Sprintf(show, suffix, strings.Join(keys(ids), ","))).Scan(&text))
			return text
		}
		wantSent, wantFailed := look("", sent), look("", failed)
		_, err := b.store.Expire(b.Ctx, b.table.Name(), logged, keys(failed))
		if err == nil || !strings.Contains(err.Error(), "later: it is varchar(30)") { // another type: refused, and nothing moves
			b.Fatalf("a log with another type took the rows: %v", err)
		}
		testkit.Exec(b, b.DB, "ALTER TABLE outbox_failed MODIFY later VARCHAR(20) CHARACTER SET utf8mb4 NULL")
		if left := b.expire(sentMoves, keys(sent)); left.Rows != 2 {
			b.Fatalf("%+v", left)
		}
		if left := b.expire(logged, keys(failed)); left.Rows != 1 {
			b.Fatalf("%+v", left)
		}
		if got := look("_archive", sent); got != wantSent {
			b.Errorf("archived\n%s, want\n%s", got, wantSent)
		}
		if got := look("_failed", failed); got != wantFailed {
			b.Errorf("logged\n%s, want\n%s", got, wantFailed)
		}
		var lately bool
		testkit.Must(b, b.DB.QueryRow("SELECT moved_at > NOW(3) - INTERVAL 1 HOUR FROM outbox_failed").Scan(&lately))
		if len(b.ids("")) != 0 || !lately {
			b.Errorf("%v stay; moved lately: %v", b.ids(""), lately)
		}
	})
}

// A session that ends between the copy and the deletion leaves each row in exactly one table.
func TestD19_ACutBetweenCopyAndDeletion(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.MakeMoved(table.ArchiveSuffix)
		ids := keys(b.Insert(20, "status=2, last_exec_time=NOW(3) - INTERVAL 8 DAY, created_at=NOW(3) - INTERVAL 8 DAY"))
		testkit.Exec(b, b.DB, "CREATE TRIGGER slow BEFORE DELETE ON outbox FOR EACH ROW DO GET_LOCK('"+b.Schema+"', 60)")
		holder, err := b.DB.Conn(b.Ctx)
		testkit.Must(b, err)
		_, err = holder.ExecContext(b.Ctx, "DO GET_LOCK('"+b.Schema+"', 0)")
		testkit.Must(b, err)
		ended := make(chan error, 1)
		go func() {
			_, err := b.store.Expire(context.Background(), b.table.Name(), sentMoves, ids)
			ended <- err
		}()
		var victim int
		testkit.WaitFor(b, 30*time.Second, "the deletion", func() bool {
			err := b.DB.QueryRow("SELECT ID FROM " + b.Server.Processlist() + " WHERE STATE = 'User lock' AND INFO LIKE '%" + b.Schema + "%' LIMIT 1").Scan(&victim)
			return err == nil
		})
		testkit.Exec(b, b.DB, fmt.Sprintf("KILL %d", victim))
		if err := <-ended; err == nil {
			b.Error("a transaction without its session succeeded")
		}
		testkit.Must(b, holder.Close())
		if len(b.ids("")) != 20 || len(b.ids("_archive")) != 0 {
			b.Fatalf("%d rows and %d copies", len(b.ids("")), len(b.ids("_archive")))
		}
		testkit.WaitFor(b, 30*time.Second, "the end of the transaction", func() bool {
			_, err := b.DB.Exec("DROP TRIGGER slow")
			return err == nil
		})
		if left := b.expire(sentMoves, ids); left.Rows != 20 || len(b.ids("")) != 0 || len(b.ids("_archive")) != 20 {
			b.Errorf("again: %+v, %d copies", left, len(b.ids("_archive")))
		}
	})
}

// Rows that the server refuses harm only themselves: a key that the archive has, a trigger.
func TestD19_RefusedRowsStayAlone(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.MakeMoved(table.ArchiveSuffix)
		ids := keys(b.Insert(9, "status=2, last_exec_time=NOW(3) - INTERVAL 8 DAY, created_at=NOW(3) - INTERVAL 8 DAY"))
		testkit.Exec(b, b.DB, "INSERT INTO outbox_archive SELECT * FROM outbox WHERE id = "+ids[4])
		testkit.Exec(b, b.DB, "CREATE TRIGGER keep BEFORE DELETE ON outbox FOR EACH ROW BEGIN IF OLD.id = "+ids[7]+
			" THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'audited'; END IF; END")
		left := b.expire(sentMoves, ids)
		if left.Rows != 7 || left.Refused != 2 || left.ID != ids[7] || !strings.Contains(left.Reason, "audited") {
			b.Errorf("%+v", left)
		}
		if got := b.ids(""); !slices.Equal(got, []string{ids[4], ids[7]}) || len(b.ids("_archive")) != 8 {
			b.Errorf("%v stay, %v are archived", got, b.ids("_archive"))
		}
	})
}

// A server without SKIP LOCKED: a row that another session has locked stays, and the others leave.
func TestExpiryWithoutSkipLocked(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(50)
		testkit.Exec(b, b.DB, "UPDATE outbox SET status = 2, created_at = NOW() - INTERVAL 30 DAY, updated_at = NOW() - INTERVAL 30 DAY")
		b.table.waits.Store(true)
		tx := b.lock(ids[7])
		if left := b.expire(sentWeek, keys(ids)); left.Rows != 49 || left.Skipped != 1 || left.Refused != 0 {
			b.Errorf("next to a locked row: %+v", left)
		}
		testkit.Must(b, tx.Rollback())
		if left := b.expire(sentWeek, keys(ids)); left.Rows != 1 {
			b.Errorf("after the lock: %+v", left)
		}
		if all := b.ids(""); len(all) > 0 {
			b.Errorf("%v are left", all)
		}
	})
}
