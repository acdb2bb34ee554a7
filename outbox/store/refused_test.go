package store

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Rows of the fixture, by primary key. All others are sound.
const (
	nameless = ""         // no statement can name it
	guarded  = "guarded"  // a trigger refuses each change of it, and that it is deleted
	absurd   = "absurd"   // its count of attempts is no number that the relay can read
	veiled   = "veiled"   // the server cannot show it: an expression of a column fails
	occupied = "occupied" // another session holds its lock
)

var (
	sound = []string{"a1", "b2", "n3", "z4"}
	bad   = []string{nameless, guarded, absurd, veiled, occupied}
)

// badRows makes a table with a text key whose rows all have a status, and puts the bad ones among them.
func badRows(b *bench, status string) (all []outbox.Identity) {
	b.Helper()
	testkit.Exec(b, b.DB, "DROP TABLE IF EXISTS "+b.Quoted+", outbox_failed, outbox_archive")
	b.Create("outbox")
	testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY id VARCHAR(64) NOT NULL, MODIFY retry_count BIGINT UNSIGNED NOT NULL DEFAULT 0, ADD n BIGINT UNSIGNED NOT NULL DEFAULT 9")
	for _, id := range slices.Concat(sound, bad) {
		set := ", status=" + status
		switch id {
		case absurd:
			set += ", retry_count=18446744073709551615"
		case veiled:
			set += ", n=1"
		}
		testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" SET id='"+id+"', biz_type='order', biz_key='k"+id+"', topic='orders', message_body='{}'"+
			", created_at=NOW(3) - INTERVAL 50 DAY, updated_at=NOW(3) - INTERVAL 50 DAY, last_exec_time=NOW(3) - INTERVAL 50 DAY"+set)
	}
	testkit.Exec(b, b.DB, "CREATE TRIGGER refuse_change BEFORE UPDATE ON "+b.Quoted+" FOR EACH ROW "+
		"IF OLD.id = '"+guarded+"' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF")
	testkit.Exec(b, b.DB, "CREATE TRIGGER refuse_delete BEFORE DELETE ON "+b.Quoted+" FOR EACH ROW "+
		"IF OLD.id = '"+guarded+"' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF")
	m := b.Mapping("outbox")
	m.Redeliver = table.Redeliver{After: time.Hour, Until: "consumed", Max: 3}
	m.States = map[string]string{"consumed": "7"}
	b.LoadAsIs(m)
	testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" DROP COLUMN topic") // a change of the table while the relay runs
	testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" ADD COLUMN topic VARCHAR(64) AS (IF(n - 5 >= 0, 'orders', 'none')) VIRTUAL")
	for _, id := range slices.Concat(sound, bad) {
		all = append(all, outbox.Identity{Table: b.table.Name(), ID: id, MessageID: "order:k" + id})
	}
	tx, err := b.DB.Begin()
	testkit.Must(b, err)
	b.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.Exec("SELECT id FROM " + b.Quoted + " WHERE id = '" + occupied + "' FOR UPDATE")
	testkit.Must(b, err)
	b.unlock = func() { testkit.Must(b, tx.Rollback()) }
	return all
}

// counted is the number of sound rows with a status.
func (b *bench) soundWith(status string) (n int) {
	b.Helper()
	testkit.Must(b, b.DB.QueryRow("SELECT COUNT(*) FROM "+b.Quoted+" WHERE id IN ('"+strings.Join(sound, "','")+"') AND status = "+status).Scan(&n))
	return n
}

// G11, P8: whatever handles many rows, one row harms only itself. Each statement is given every bad row among sound ones; the sound ones are
// handled, and what cannot be handled is noted with its key.
func TestG11_OneRowStopsNoStatement(t *testing.T) {
	everyOne := func(b *bench, got []string, what string) {
		b.Helper()
		for _, id := range sound {
			if !slices.Contains(got, id) {
				b.Errorf("%s: row %s is missing from %q", what, id, got)
			}
		}
	}
	named := func(list []outbox.Candidate) (ids []string) {
		for _, c := range list {
			ids = append(ids, c.ID)
		}
		return ids
	}
	candidates := func(all []outbox.Identity, status outbox.Status) (list []outbox.Candidate) {
		for _, id := range all {
			list = append(list, outbox.Candidate{Identity: id, Status: status})
		}
		return list
	}
	for _, c := range []struct {
		name    string
		status  string
		refused []string // that are noted
		run     func(b *bench, all []outbox.Identity)
	}{
		{"list", "0", []string{nameless, absurd, veiled}, func(b *bench, all []outbox.Identity) {
			found := b.due(table.DueQuery{Limit: 500})
			everyOne(b, named(found), "due")
			for _, c := range found {
				if (c.ID == nameless || c.ID == absurd && !b.Server.Before(8, 0)) && !c.Waiting {
					b.Errorf("row %q does not wait: %+v", c.ID, c)
				}
			}
		}},
		{"list row by row", "0", []string{nameless, absurd, veiled}, func(b *bench, all []outbox.Identity) {
			everyOne(b, named(b.due(table.DueQuery{Limit: 1})), "due")
		}},
		{"claim and read back", "0", []string{nameless, guarded, veiled}, func(b *bench, all []outbox.Identity) {
			stamp, err := b.store.Claim(b.Ctx, candidates(all, outbox.Pending))
			testkit.Must(b, err)
			messages, _, err := b.store.ReadBack(b.Ctx, stamp, all)
			testkit.Must(b, err)
			var got []string
			for _, m := range messages {
				got = append(got, m.ID)
			}
			everyOne(b, got, "read back")
		}},
		{"states", "0", []string{nameless, absurd, veiled}, func(b *bench, all []outbox.Identity) {
			found, err := b.store.States(b.Ctx, all)
			testkit.Must(b, err)
			everyOne(b, named(found), "states")
			for _, c := range found {
				if left := c.ID == nameless || c.ID == absurd && !b.Server.Before(8, 0) || c.ID == veiled && b.Server.Flavor == testkit.MySQL; left != c.Waiting {
					b.Errorf("row %q waits: %v", c.ID, c.Waiting)
				}
			}
		}},
		{"untouched", "0", nil, func(b *bench, all []outbox.Identity) {
			untouched, err := b.store.Untouched(b.Ctx, all)
			testkit.Must(b, err)
			if untouched {
				b.Error("rows that cannot be read count as untouched")
			}
		}},
		{"write", "0", nil, func(b *bench, all []outbox.Identity) {
			var batch []outbox.Completion
			for _, id := range all {
				batch = append(batch, outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
			}
			left := b.apply(batch...)
			var ids []string
			for _, l := range left {
				ids = append(ids, l.ID)
			}
			for _, id := range []string{nameless, guarded, occupied} {
				if !slices.Contains(ids, id) {
					b.Errorf("row %q is not handed back: %q", id, ids)
				}
			}
			if n := b.soundWith("2"); n != len(sound) {
				b.Errorf("%d sound rows are SENT", n)
			}
		}},
		{"read what is sent", "2", []string{nameless, veiled}, func(b *bench, all []outbox.Identity) {
			messages, err := b.store.ReadSent(b.Ctx, all)
			testkit.Must(b, err)
			var got []string
			for _, m := range messages {
				got = append(got, m.ID)
			}
			everyOne(b, got, "read what is sent")
		}},
		{"mark as consumed", "2", []string{nameless, guarded}, func(b *bench, all []outbox.Identity) {
			_, err := b.store.MarkDone(b.Ctx, all)
			testkit.Must(b, err)
			if n := b.soundWith("7"); n != len(sound) {
				b.Errorf("%d sound rows are marked", n)
			}
		}},
		{"list what is FAILED", "3", []string{nameless, absurd, veiled}, func(b *bench, all []outbox.Identity) {
			everyOne(b, keys(b.final(outbox.Failed, time.Hour)), "final")
		}},
		{"try FAILED rows once more", "3", []string{nameless, guarded}, func(b *bench, all []outbox.Identity) {
			_, err := b.store.RetryFailed(b.Ctx, all)
			testkit.Must(b, err)
			if n := b.soundWith("0"); n != len(sound) {
				b.Errorf("%d sound rows are PENDING", n)
			}
		}},
		{"operator's retry", "3", nil, func(b *bench, all []outbox.Identity) {
			if _, err := b.store.Retry(b.Ctx, all); err == nil || !strings.Contains(err.Error(), "left as they are") {
				b.Errorf("the operator gets no line: %v", err)
			}
			if n := b.soundWith("0"); n != len(sound) {
				b.Errorf("%d sound rows are PENDING", n)
			}
		}},
		{"operator's republish", "2", nil, func(b *bench, all []outbox.Identity) {
			b.unlock() // it waits for locks
			if _, err := b.store.Republish(b.Ctx, all); err == nil || !strings.Contains(err.Error(), "not this one") {
				b.Errorf("the operator gets no line: %v", err)
			}
			if n := b.soundWith("0"); n != len(sound) {
				b.Errorf("%d sound rows are PENDING", n)
			}
		}},
		{"operator's discard", "3", nil, func(b *bench, all []outbox.Identity) {
			b.MakeMoved(table.FailedSuffix)
			if _, err := b.store.Discard(b.Ctx, all); err == nil || !strings.Contains(err.Error(), "left as they are") {
				b.Errorf("the operator gets no line: %v", err)
			}
			if n := b.soundWith("3"); n != 0 {
				b.Errorf("%d sound rows stay", n)
			}
		}},
		{"expire", "2", []string{nameless, guarded}, func(b *bench, all []outbox.Identity) {
			found, _ := b.walkAll(sentWeek)
			everyOne(b, found[0], "expired")
			left := b.expire(sentWeek, found[0])
			if left.Refused != 2 || b.soundWith("2") != 0 {
				b.Errorf("left %+v, %d sound rows stay", left, b.soundWith("2"))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				all := badRows(b, c.status)
				c.run(b, all)
				for _, id := range c.refused {
					if id == veiled && b.Server.Flavor == testkit.MariaDB || id == absurd && b.Server.Before(8, 0) { // which show such a row
						continue
					}
					if !b.store.isRefused(id) {
						b.Errorf("row %q is not noted", id)
					}
				}
				for _, id := range append(slices.Clone(sound), occupied) {
					if b.store.isRefused(id) {
						b.Errorf("row %q is noted", id)
					}
				}
			})
		})
	}
}

// isRefused reports whether a row with a key was noted.
func (s *Store) isRefused(id string) bool {
	s.refused.mu.Lock()
	defer s.refused.mu.Unlock()
	for _, t := range s.refused.tables {
		for one := range t.rows {
			if one.ID == id {
				return true
			}
		}
	}
	return false
}

// G33: a mapped column that is missing is an error of the list with the column's name, before a row is due.
func TestG33_AMissingColumnIsAnErrorOfTheSweep(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" CHANGE message_body body LONGTEXT NULL")
		_, _, err := b.store.Due(context.Background(), b.table.Name(), table.Cursor{}, table.DueQuery{})
		if err == nil || !strings.Contains(err.Error(), "message_body") {
			b.Errorf("got %v", err)
		}
	})
}

// G11: the log has one line for a table and minute, with the number of rows, and the status forgets a row that is no longer refused.
func TestG11_RefusedRowsAreToldOnceAMinute(t *testing.T) {
	b := t
	store := New(nil, nil, nil, nil)
	var lines []int
	store.OnRefused(func(last RefusedRow, rows int) { lines = append(lines, rows) })
	row := func(table, id string) RefusedRow {
		return RefusedRow{Identity: outbox.Identity{Table: table, ID: id}, Reason: "why " + id}
	}
	store.refused.add(row("t", "1"), row("t", "2"), row("u", "1"))
	store.refused.add(row("t", "3"))
	if !slices.Equal(lines, []int{2, 1}) {
		b.Errorf("lines %v", lines)
	}
	if last, n := store.Refused("t", time.Minute); n != 3 || last.Reason != "why 3" {
		b.Errorf("%d rows, the last %+v", n, last)
	}
	if _, n := store.Refused("t", -1); n != 0 {
		b.Errorf("%d rows", n)
	}
}
