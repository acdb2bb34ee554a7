package store

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Status codes may be words. Where the server takes upper and lower case for the same, so do we.
func TestWordCodes(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			b := newBench(t, flavor)
			b.Create("outbox")
			testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY status VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL DEFAULT 'pending'")
			m := b.Mapping("outbox")
			m.Codes = map[outbox.Status]string{outbox.Pending: "pending", outbox.Sending: "sending", outbox.Sent: "sent", outbox.Failed: "failed"}
			b.Load(m)
			ids := append(b.Insert(1, ""), b.Insert(1, "status='PENDING'")...)
			held := b.Insert(1, "status='suspended'")[0]
			found := b.due(table.DueQuery{})
			if len(found) != 2 {
				b.Fatalf("due: %+v", found)
			}
			stamp, err := b.store.Claim(b.Ctx, found)
			testkit.Must(b, err)
			messages, _, err := b.store.ReadBack(b.Ctx, stamp, ids)
			if err != nil || len(messages) != 2 || messages[1].Status != outbox.Sending {
				b.Fatalf("%+v, %v", messages, err)
			}
			b.apply(outbox.Completion{Identity: ids[0], Action: outbox.ActionMarkSent}, outbox.Completion{Identity: ids[1], Action: outbox.ActionRelease, Claim: stamp},
				outbox.Completion{Identity: held, Action: outbox.ActionMarkSent})
			b.Want(ids[0], "sent", "status")
			b.Want(ids[1], "pending", "status")
			b.Want(held, "suspended", "status")
		})
	}
}

// Write-backs happen where a column is mapped; an unsigned id beyond the signed range is a row like any other (A24).
func TestA24_WriteBacksAndBigIDs(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" ADD broker_id VARCHAR(5) NULL, ADD sent_at DATETIME(6) NULL, ADD version INT NOT NULL DEFAULT 7")
		m := b.Mapping("outbox")
		m.Set(table.BrokerMessageID, "broker_id")
		m.Set(table.SentAt, "sent_at")
		m.Set(table.LockVersion, "version")
		b.Load(m)
		ids := b.Insert(2, "")
		testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" SET id=18446744073709551000, biz_type='order', biz_key='big', topic='orders'")
		ids = append(ids, outbox.Identity{Table: b.table.Name(), ID: "18446744073709551000", MessageID: "order:big"})
		b.apply(outbox.Completion{Identity: ids[0], Action: outbox.ActionMarkSent, BrokerID: "AAAA"},
			outbox.Completion{Identity: ids[1], Action: outbox.ActionMarkSent},
			outbox.Completion{Identity: ids[2], Action: outbox.ActionMarkSent, BrokerID: "BBBBBB"})
		for i, broker := range []string{"AAAA", "NULL", "BBBBB"} {
			b.Want(ids[i], "2|"+broker+"|8|1|canal-outbox", "status", "broker_id", "version",
				"ABS(TIMESTAMPDIFF(SECOND, sent_at, NOW())) < 60", "updated_by")
		}
		found, err := b.store.States(b.Ctx, ids)
		if err != nil || len(found) != 3 {
			b.Errorf("%+v, %v", found, err)
		}
	})
}

// D13: due times are judged by the database's clock in the table's zone, whatever zone the session has; TIMESTAMP columns
// need none and read the same on both paths (A21).
func TestD13_TimeZones(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)")
		testkit.Exec(b, b.DB, "SET GLOBAL time_zone = '+05:00'")
		b.Cleanup(func() { testkit.Exec(b, b.DB, "SET GLOBAL time_zone = 'SYSTEM'") })
		b.Reopen()
		m := b.Mapping("outbox")
		m.TimeZone = "-11:30"
		b.Load(m)
		const local = "CONVERT_TZ(UTC_TIMESTAMP(3), '+00:00', '-11:30')"
		due := b.Insert(1, "next_retry_time="+local+" - INTERVAL 1 SECOND")[0]
		later := b.Insert(1, "next_retry_time="+local+" + INTERVAL 1 MINUTE")[0]
		found := b.due(table.DueQuery{})
		if len(found) != 1 || found[0].Identity != due {
			b.Fatalf("due: %+v", found)
		}
		if found = b.due(table.DueQuery{Horizon: time.Hour}); len(found) != 2 || !found[1].Waiting || found[1].Identity != later {
			b.Fatalf("within an hour: %+v", found)
		}
		stamp, err := b.store.Claim(b.Ctx, found)
		testkit.Must(b, err)
		b.Want(due, "1", "ABS(TIMESTAMPDIFF(SECOND, last_exec_time, "+local+")) < 60")
		messages, _, err := b.store.ReadBack(b.Ctx, stamp, []outbox.Identity{due, later})
		testkit.Must(b, err)
		if len(messages) != 1 || time.Since(messages[0].DueAt).Abs() > time.Minute || time.Since(messages[0].CreatedAt).Abs() > time.Minute {
			b.Fatalf("messages %+v", messages)
		}
		b.apply(outbox.Completion{Identity: due, Action: outbox.ActionRetry, Delay: time.Minute})
		b.Want(due, "1", "TIMESTAMPDIFF(SECOND, "+local+", next_retry_time) BETWEEN 30 AND 60")
	})
}

// What the probes of a table ask for is what its statements need.
func TestProbesShowMissingGrants(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		d := b.Server
		user := "probe_" + b.Schema
		testkit.Must(b, d.CreateUser(b.Ctx, user, "", "SELECT ON "+b.Schema+".*", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*"))
		b.Cleanup(func() { testkit.Exec(b, d.Root(), "DROP USER '"+user+"'@'%'") })
		for _, faulty := range []bool{true, false} {
			db, err := server.Open(server.Config{Address: d.Addr(), User: user}, nil, server.Session{Writes: true})
			testkit.Must(b, err)
			info, err := server.Inspect(b.Ctx, db)
			testkit.Must(b, err)
			findings, err := info.Grants(b.Ctx, db, Probes(b.Table, true))
			testkit.Must(b, err)
			if server.HasFault(findings) != faulty {
				b.Errorf("want a fault: %v; got %+v", faulty, findings)
			}
			if faulty {
				testkit.Exec(b, d.Root(), findings[0].Fix)
			} else {
				id := b.Insert(1, "")[0]
				store := New(db, []*table.Table{b.Table}, nil, nil)
				_, err := store.Apply(b.Ctx, []outbox.Completion{{Identity: id, Action: outbox.ActionMarkSent}, {Identity: id, Action: outbox.ActionMarkSent}})
				testkit.Must(b, err)
				b.Want(id, "2", "status")
			}
			testkit.Must(b, db.Close())
		}
	})
}
