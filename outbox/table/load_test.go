package table

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// The DDL of a preset and its mapping belong together: there is no fault, and no role that the preset does not say may be missing.
func TestPresetsFitTheirDDL(t *testing.T) {
	for _, preset := range Presets() {
		for _, flavor := range testkit.Flavors() {
			t.Run(preset+"/"+string(flavor), func(t *testing.T) {
				b := newBench(t, flavor)
				b.create(preset)
				b.loadAsIs(b.mapping(preset))
				for role := range b.table.mapping.Columns {
					if !b.table.has(role) && !b.table.mapping.IfPresent[role] {
						b.Errorf("the DDL has no column for %s", role)
					}
				}
				if b.table.appendID {
					b.Error("the index that makes the message id unique is missing")
				}
			})
		}
	}
}

// finding returns the finding about a part of the table; the zero one when there is none.
func (b *bench) finding(m Mapping, part string) server.Finding {
	b.Helper()
	t, findings, err := Load(b.ctx, b.db, m)
	testkit.Must(b, err)
	if (t == nil) != server.HasFault(findings) {
		b.Errorf("table %v with findings %+v", t, findings)
	}
	for _, f := range findings {
		if strings.HasPrefix(f.Subject, b.schema+".") && strings.HasSuffix(f.Subject, part) && f.Severity != server.OK {
			return f
		}
	}
	return server.Finding{}
}

func TestLoadFindsFaults(t *testing.T) {
	for _, c := range []struct {
		name, alter, part string
		severity          server.Severity
		what              string
		only              testkit.Flavor
	}{
		{"A33 engine", "ENGINE=MyISAM", ".outbox", server.Fault, "MyISAM", ""},
		{"A49 latin1 body", "MODIFY message_body LONGTEXT CHARACTER SET latin1", ".message_body", server.Fault, "latin1", ""},
		{"A49 gbk topic", "MODIFY topic VARCHAR(100) CHARACTER SET gbk NOT NULL", ".topic", server.Fault, "gbk", ""},
		{"A47 JSON body", "MODIFY message_body JSON", ".message_body", server.Warning, "JSON", testkit.MySQL},
		{"A43 compressed column", "MODIFY message_body LONGTEXT COMPRESSED", ".message_body", server.Fault, "COMPRESSED", testkit.MariaDB},
		{"A43 compressed foreign column", "ADD note LONGTEXT COMPRESSED", ".note", server.Fault, "COMPRESSED", testkit.MariaDB},
		{"A48 ENUM status", "MODIFY status ENUM('0','1','2','3') NOT NULL DEFAULT '0'", ".status", server.Fault, "enum", ""},
		{"A48 BINARY topic", "MODIFY topic BINARY(16) NOT NULL", ".topic", server.Fault, "binary(16)", ""},
		{"zerofill id", "MODIFY id BIGINT UNSIGNED ZEROFILL NOT NULL AUTO_INCREMENT", ".id", server.Fault, "zerofill", ""},
		{"time as text", "MODIFY next_retry_time VARCHAR(30)", ".next_retry_time", server.Fault, "DATETIME or TIMESTAMP", ""},
		{"missing topic", "DROP topic", ".topic", server.Fault, "no such column", ""},
		{"missing age", "DROP created_at", ".created_at", server.Warning, "age", ""},
		{"generated status", "DROP INDEX idx_sweep, DROP status, ADD status TINYINT AS (0) STORED", ".status", server.Fault, "cannot be written", ""},
		{"virtual key", "DROP INDEX uk_message, DROP biz_key, ADD biz_key VARCHAR(100) AS (topic) VIRTUAL", ".biz_key", server.Fault, "VIRTUAL", ""},
		{"A59 other primary key", "ADD UNIQUE KEY (id), DROP PRIMARY KEY, ADD PRIMARY KEY (biz_type, biz_key)", ".id", server.Fault, "primary key", ""},
		{"wide primary key", "ADD KEY (id), DROP PRIMARY KEY, ADD PRIMARY KEY (id, topic)", ".id", server.Fault, "primary key", ""},
		{"no sweep index", "DROP INDEX idx_sweep", ".outbox", server.Warning, "index on the status", ""},
		{"an index in no order of ours", "DROP INDEX idx_sweep, ADD INDEX idx_sweep (status, topic)", ".outbox", server.Warning, "no order that the sweep can follow", ""},
		{"no unique index", "DROP INDEX uk_message", ".biz_type+biz_key", server.Warning, "appended", ""},
		{"prefix index", "DROP INDEX uk_message, ADD UNIQUE KEY (biz_type, biz_key(10))", ".biz_type+biz_key", server.Warning, "appended", ""},
		{"coarse stamp", "MODIFY last_exec_time DATETIME NULL", ".last_exec_time", server.Warning, "milliseconds", ""},
		{"short reason", "MODIFY fail_reason VARCHAR(20) NULL", ".fail_reason", server.Warning, "20 characters", ""},
	} {
		for _, flavor := range testkit.Flavors() {
			if c.only != "" && c.only != flavor {
				continue
			}
			t.Run(c.name+"/"+string(flavor), func(t *testing.T) {
				b := newBench(t, flavor)
				b.create("outbox")
				testkit.Exec(b, b.db, "ALTER TABLE "+b.name+" "+c.alter)
				f := b.finding(b.mapping("outbox"), c.part)
				if f.Severity != c.severity || !strings.Contains(f.What, c.what) || f.Fix == "" {
					b.Fatalf("found %+v", f)
				}
				// A statement that fixes must do so.
				if strings.HasPrefix(f.Fix, "ALTER TABLE ") || strings.HasPrefix(f.Fix, "CREATE ") {
					testkit.Exec(b, b.db, f.Fix)
					if f := b.finding(b.mapping("outbox"), c.part); f.Severity != "" {
						b.Errorf("after its own statement: %+v", f)
					}
				}
			})
		}
	}
}

func TestLoadFindsNoTable(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			b := newBench(t, flavor)
			m := b.mapping("outbox")
			if f := b.finding(m, ".outbox"); f.Severity != server.Fault || !strings.Contains(f.What, "no such table") {
				b.Errorf("missing: %+v", f)
			}
			b.create("outbox")
			testkit.Exec(b, b.db, "CREATE VIEW seen AS SELECT * FROM outbox")
			m.Name = "seen"
			if f := b.finding(m, ".seen"); f.Severity != server.Fault || !strings.Contains(f.What, "view") {
				b.Errorf("view: %+v", f)
			}
		})
	}
}

func TestLoadChecksTheMapping(t *testing.T) {
	b := newBench(t, testkit.MariaDB)
	b.create("outbox")
	for name, c := range map[string]struct {
		change func(*Mapping)
		part   string
		what   string
	}{
		"no body":         {func(m *Mapping) { m.Set(Body, "") }, ".outbox", "body, which is needed"},
		"no topic":        {func(m *Mapping) { m.Set(Topic, "") }, ".outbox", "no column is mapped to topic"},
		"topic's column":  {func(m *Mapping) { m.SetTopic(TopicRule{Column: "kind", Prefix: "order."}) }, ".kind", "tables[].topic makes the topic of it"},
		"no message id":   {func(m *Mapping) { m.Set(Key, "") }, ".outbox", "no stable message id"},
		"wrong column":    {func(m *Mapping) { m.Set(Tag, "msg_tag") }, ".msg_tag", "mapped as the tag"},
		"twice":           {func(m *Mapping) { m.Set(Tag, "Fail_Reason") }, ".outbox", "has two roles, tag and fail_reason, and the relay writes fail_reason"},
		"both written":    {func(m *Mapping) { m.Set(SentAt, "last_exec_time") }, ".outbox", "has two roles, last_exec_time and sent_at, and the relay writes sent_at"},
		"code missing":    {func(m *Mapping) { delete(m.Codes, outbox.Sent) }, ".outbox", "sent, which is needed"},
		"consumer's code": {func(m *Mapping) { m.SetCode("consumed", "2") }, ".outbox", `"2" is mapped to sent and to consumed`},
		"code twice":      {func(m *Mapping) { m.Codes[outbox.Failed] = "2" }, ".outbox", `"2" is mapped to`},
		"word code":       {func(m *Mapping) { m.Codes[outbox.Failed] = "failed" }, ".status", "not a number"},
		"zone":            {func(m *Mapping) { m.TimeZone = "Mars/Olympus" }, ".outbox", "does not know the time zone"},
		"bad offset":      {func(m *Mapping) { m.TimeZone = "+25:00" }, ".outbox", "does not know the time zone"},
	} {
		m := b.mapping("outbox")
		c.change(&m)
		if f := b.finding(m, c.part); f.Severity != server.Fault || !strings.Contains(f.What, c.what) || f.Fix == "" {
			b.Errorf("%s: %+v", name, f)
		}
	}
}

// Status codes may be words. Where the server takes upper and lower case for the same, so do we.
func TestWordCodes(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			b := newBench(t, flavor)
			b.create("outbox")
			testkit.Exec(b, b.db, "ALTER TABLE "+b.name+" MODIFY status VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL DEFAULT 'pending'")
			m := b.mapping("outbox")
			m.Codes = map[outbox.Status]string{outbox.Pending: "pending", outbox.Sending: "sending", outbox.Sent: "sent", outbox.Failed: "failed"}
			b.load(m)
			ids := append(b.insert(1, ""), b.insert(1, "status='PENDING'")...)
			held := b.insert(1, "status='suspended'")[0]
			found := b.due(DueQuery{})
			if len(found) != 2 {
				b.Fatalf("due: %+v", found)
			}
			stamp, err := b.store.Claim(b.ctx, found)
			testkit.Must(b, err)
			messages, _, err := b.store.ReadBack(b.ctx, stamp, ids)
			if err != nil || len(messages) != 2 || messages[1].Status != outbox.Sending {
				b.Fatalf("%+v, %v", messages, err)
			}
			b.apply(outbox.Completion{Identity: ids[0], Action: outbox.ActionMarkSent}, outbox.Completion{Identity: ids[1], Action: outbox.ActionRelease, Claim: stamp},
				outbox.Completion{Identity: held, Action: outbox.ActionMarkSent})
			b.want(ids[0], "sent", "status")
			b.want(ids[1], "pending", "status")
			b.want(held, "suspended", "status")
		})
	}
}

// Write-backs happen where a column is mapped; an unsigned id beyond the signed range is a row like any other (A24).
func TestA24_WriteBacksAndBigIDs(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Exec(b, b.db, "ALTER TABLE "+b.name+" ADD broker_id VARCHAR(5) NULL, ADD sent_at DATETIME(6) NULL, ADD version INT NOT NULL DEFAULT 7")
		m := b.mapping("outbox")
		m.Set(BrokerMessageID, "broker_id")
		m.Set(SentAt, "sent_at")
		m.Set(LockVersion, "version")
		b.load(m)
		ids := b.insert(2, "")
		testkit.Exec(b, b.db, "INSERT INTO "+b.name+" SET id=18446744073709551000, biz_type='order', biz_key='big', topic='orders'")
		ids = append(ids, outbox.Identity{Table: b.table.name, ID: "18446744073709551000", MessageID: "order:big"})
		b.apply(outbox.Completion{Identity: ids[0], Action: outbox.ActionMarkSent, BrokerID: "AAAA"},
			outbox.Completion{Identity: ids[1], Action: outbox.ActionMarkSent},
			outbox.Completion{Identity: ids[2], Action: outbox.ActionMarkSent, BrokerID: "BBBBBB"})
		for i, broker := range []string{"AAAA", "NULL", "BBBBB"} {
			b.want(ids[i], "2|"+broker+"|8|1|canal-outbox", "status", "broker_id", "version",
				"ABS(TIMESTAMPDIFF(SECOND, sent_at, NOW())) < 60", "updated_by")
		}
		found, err := b.store.States(b.ctx, ids)
		if err != nil || len(found) != 3 {
			b.Errorf("%+v, %v", found, err)
		}
	})
}

// D13: due times are judged by the database's clock in the table's zone, whatever zone the session has; TIMESTAMP columns
// need none and read the same on both paths (A21).
func TestD13_TimeZones(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Exec(b, b.db, "ALTER TABLE "+b.name+" MODIFY created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)")
		testkit.Exec(b, b.db, "SET GLOBAL time_zone = '+05:00'")
		b.Cleanup(func() { testkit.Exec(b, b.db, "SET GLOBAL time_zone = 'SYSTEM'") })
		b.reopen()
		m := b.mapping("outbox")
		m.TimeZone = "-11:30"
		b.load(m)
		const local = "CONVERT_TZ(UTC_TIMESTAMP(3), '+00:00', '-11:30')"
		due := b.insert(1, "next_retry_time="+local+" - INTERVAL 1 SECOND")[0]
		later := b.insert(1, "next_retry_time="+local+" + INTERVAL 1 MINUTE")[0]
		found := b.due(DueQuery{})
		if len(found) != 1 || found[0].Identity != due {
			b.Fatalf("due: %+v", found)
		}
		if found = b.due(DueQuery{Horizon: time.Hour}); len(found) != 2 || !found[1].Waiting || found[1].Identity != later {
			b.Fatalf("within an hour: %+v", found)
		}
		stamp, err := b.store.Claim(b.ctx, found)
		testkit.Must(b, err)
		b.want(due, "1", "ABS(TIMESTAMPDIFF(SECOND, last_exec_time, "+local+")) < 60")
		messages, _, err := b.store.ReadBack(b.ctx, stamp, []outbox.Identity{due, later})
		testkit.Must(b, err)
		if len(messages) != 1 || time.Since(messages[0].DueAt).Abs() > time.Minute || time.Since(messages[0].CreatedAt).Abs() > time.Minute {
			b.Fatalf("messages %+v", messages)
		}
		b.apply(outbox.Completion{Identity: due, Action: outbox.ActionRetry, Delay: time.Minute})
		b.want(due, "1", "TIMESTAMPDIFF(SECOND, "+local+", next_retry_time) BETWEEN 30 AND 60")
	})
}

// D13: without a zone of its own a table has the server's, which Counts follows when it changes.
func TestD13_DefaultZone(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.Cleanup(func() { testkit.Exec(b, b.db, "SET GLOBAL time_zone = 'SYSTEM'") })
		for _, zone := range []string{"+05:00", "-03:30"} {
			testkit.Exec(b, b.db, "SET GLOBAL time_zone = '"+zone+"'")
			b.reopen()
			b.use(b.table)
			_, err := b.store.Counts(b.ctx)
			testkit.Must(b, err)
			id := b.insert(1, "next_retry_time=CONVERT_TZ(UTC_TIMESTAMP(3), '+00:00', '"+zone+"')")[0]
			stamp, err := b.store.Claim(b.ctx, b.due(DueQuery{}))
			testkit.Must(b, err)
			messages, _, err := b.store.ReadBack(b.ctx, stamp, []outbox.Identity{id})
			testkit.Must(b, err)
			if len(messages) != 1 || time.Since(messages[0].DueAt).Abs() > time.Minute {
				b.Errorf("%s: %+v", zone, messages)
			}
		}
	})
}

// D24: one store, several tables with the same ids.
func TestD24_SeveralTables(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		first, id := b.table, b.insert(1, "")[0]
		testkit.Exec(b, b.db, fmt.Sprintf("CREATE TABLE `%s`.`t.2` LIKE %s", b.schema, b.name))
		m := b.mapping("outbox")
		m.Name = "t.2"
		b.name = fmt.Sprintf("`%s`.`t.2`", b.schema)
		b.load(m)
		b.next--
		twin := b.insert(1, "id="+id.ID)[0]
		b.store = New(b.store.db, []*Table{first, b.table})
		b.apply(outbox.Completion{Identity: id, Action: outbox.ActionMarkSent}, outbox.Completion{Identity: twin, Action: outbox.ActionFail, Reason: "x"})
		states, err := b.store.States(b.ctx, []outbox.Identity{id, twin})
		testkit.Must(b, err)
		for _, c := range states {
			if want := map[outbox.Identity]outbox.Status{id: outbox.Sent, twin: outbox.Failed}[c.Identity]; c.Status != want {
				b.Errorf("%v is %v, want %v", c.Identity, c.Status, want)
			}
		}
		if counts, err := b.store.Counts(b.ctx); err != nil || len(counts) != 2 {
			b.Errorf("counts %+v, %v", counts, err)
		}
		if _, err := b.store.Claim(b.ctx, states); err == nil {
			b.Error("rows of two tables were claimed in one call")
		}
	})
}

// What the probes of a table ask for is what its statements need.
func TestProbesShowMissingGrants(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		d := b.server
		user := "probe_" + b.schema
		testkit.Must(b, d.CreateUser(b.ctx, user, "", "SELECT ON "+b.schema+".*", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*"))
		b.Cleanup(func() { testkit.Exec(b, d.Root(), "DROP USER '"+user+"'@'%'") })
		for _, faulty := range []bool{true, false} {
			db, err := server.Open(server.Config{Address: d.Addr(), User: user}, nil, server.Session{Writes: true})
			testkit.Must(b, err)
			info, err := server.Inspect(b.ctx, db)
			testkit.Must(b, err)
			findings, err := info.Grants(b.ctx, db, b.table.Probes(true))
			testkit.Must(b, err)
			if server.HasFault(findings) != faulty {
				b.Errorf("want a fault: %v; got %+v", faulty, findings)
			}
			if faulty {
				testkit.Exec(b, d.Root(), findings[0].Fix)
			} else {
				id := b.insert(1, "")[0]
				store := New(db, []*Table{b.table})
				_, err := store.Apply(b.ctx, []outbox.Completion{{Identity: id, Action: outbox.ActionMarkSent}, {Identity: id, Action: outbox.ActionMarkSent}})
				testkit.Must(b, err)
				b.want(id, "2", "status")
			}
			testkit.Must(b, db.Close())
		}
	})
}
