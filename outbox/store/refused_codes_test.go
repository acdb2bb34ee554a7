package store

import (
	"slices"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
)

// G11: a row with an empty key that ends a page begins no other page of a list of messages again.
func TestG11_ListsPassTheEmptyKey(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		all := badRows(b, "2")
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET biz_type = CONCAT('t', id), biz_key = 'same' WHERE id IN ('', 'a1', 'b2')")
		for _, c := range []struct {
			q    query.Listing
			most int
		}{{query.Listing{State: query.AnyState}, len(all)}, {query.Listing{State: "sent"}, len(all)}, {query.Listing{State: query.AnyState, Key: "same"}, 3}} {
			q := c.q
			q.Limit, q.Scan = 1, true
			var got []string
			for page := 0; ; page++ {
				if page > len(all)+2 {
					b.Fatalf("%+v: page %d, rows %q so far", c.q, page, got)
				}
				found, err := b.query().List(b.Ctx, b.table.Name(), q)
				if b.Server.Flavor == testkit.MySQL && err != nil && (c.most > 3 || b.Server.Before(8, 0)) { // the row that the server does not show ends a list
					break
				}
				testkit.Must(b, err)
				for _, r := range found.Rows {
					got = append(got, r.ID)
				}
				if q.After = found.Next; q.After == "" {
					break
				}
			}
			if b.Server.Before(8, 0) && c.most == 3 {
				continue // it computes the column of that row for each list
			}
			if len(got) > c.most || !slices.Contains(got, "a1") || !slices.Contains(got, "b2") {
				b.Errorf("%+v: rows %q", c.q, got)
			}
		}
	})
}

// G11: errors that one row of a statement causes, and whose class the SQLSTATE does not show. Each of these rows alone is left out.
func TestG11_CodesThatOneRowCauses(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		all := badRows(b, "0")
		b.unlock()
		testkit.Exec(b, b.DB, "DROP TABLE IF EXISTS strict")
		testkit.Exec(b, b.DB, "CREATE TABLE strict (n INT NOT NULL, m INT NOT NULL) PARTITION BY LIST (n) (PARTITION p1 VALUES IN (1))")
		testkit.Exec(b, b.DB, "DROP TRIGGER refuse_change")
		trigger := "CREATE TRIGGER refuse_change BEFORE UPDATE ON " + b.Quoted + " FOR EACH ROW BEGIN DECLARE x INT; "
		causes := map[string]string{
			"no partition, 1526":       "INSERT INTO strict (n, m) VALUES (2, 1);",
			"no default, 1364":         "INSERT INTO strict (n) VALUES (1);",
			"CASE without ELSE, 1339":  "CASE OLD.id WHEN 'x' THEN SET NEW.status = NEW.status; END CASE;",
			"subquery of two, 1242":    "SET x = (SELECT 1 UNION SELECT 2);",
			"SELECT INTO of two, 1172": "SELECT n INTO x FROM (SELECT 1 AS n UNION SELECT 2) AS two;",
		}
		for id, body := range causes {
			testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" (id, biz_type, biz_key, message_body) VALUES ('"+id+"', 'order', '"+id+"', '{}')")
			all = append(all, outbox.Identity{Table: b.table.Name(), ID: id, MessageID: "order:" + id})
			trigger += "IF OLD.id = '" + id + "' THEN " + body + " END IF; "
		}
		testkit.Exec(b, b.DB, trigger+"END")
		var candidates []outbox.Candidate
		for _, id := range all {
			candidates = append(candidates, outbox.Candidate{Identity: id, Status: outbox.Pending})
		}
		if _, err := b.store.Claim(b.Ctx, candidates); err != nil {
			b.Error(err)
		}
		if n := b.soundWith("1"); n != len(sound) {
			b.Errorf("%d sound rows are claimed", n)
		}
		for id := range causes {
			if !b.store.isRefused(id) {
				b.Errorf("%s: the row is not noted", id)
			}
		}
		testkit.Exec(b, b.DB, "DROP TABLE strict")
	})
}
