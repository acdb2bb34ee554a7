package table_test

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
)

// The DDL of a preset and its mapping belong together: there is no fault, and no role that the preset does not say may be missing.
func TestPresetsFitTheirDDL(t *testing.T) {
	for _, preset := range table.Presets() {
		for _, flavor := range testkit.Flavors() {
			t.Run(preset+"/"+string(flavor), func(t *testing.T) {
				b := tabletest.New(t, flavor)
				b.Create(preset)
				b.LoadAsIs(b.Mapping(preset))
				for role := range b.Table.Mapping().Columns {
					if !b.Table.Has(role) && !b.Table.Mapping().IfPresent[role] {
						b.Errorf("the DDL has no column for %s", role)
					}
				}
				if b.Table.AppendsID() {
					b.Error("the index that makes the message id unique is missing")
				}
			})
		}
	}
}

func TestLoadFindsFaults(t *testing.T) {
	for _, c := range []struct {
		name, alter, part string
		severity          server.Severity
		what              string
		only              testkit.Flavor
	}{
		{"A33 engine", "ENGINE=MyISAM", ".outbox", server.Fault, "MyISAM", ""},
		{"A49 utf16 body", "MODIFY message_body LONGTEXT CHARACTER SET utf16", ".message_body", server.Fault, "utf16", ""},
		{"A49 big5 topic", "MODIFY topic VARCHAR(100) CHARACTER SET big5 NOT NULL", ".topic", server.Fault, "big5", ""},
		{"A47 JSON body", "MODIFY message_body JSON", ".message_body", server.Warning, "JSON", testkit.MySQL},
		{"A43 compressed column", "MODIFY message_body LONGTEXT COMPRESSED", ".message_body", server.Fault, "COMPRESSED", testkit.MariaDB},
		{"A43 compressed foreign column", "ADD note LONGTEXT COMPRESSED", ".note", server.Fault, "COMPRESSED", testkit.MariaDB},
		{"A48 ENUM status", "MODIFY status ENUM('0','1','2','3') NOT NULL DEFAULT '0'", ".status", server.Fault, "enum", ""},
		{"A48 BINARY topic", "MODIFY topic BINARY(16) NOT NULL", ".topic", server.Fault, "binary(16)", ""},
		{"zerofill id", "MODIFY id BIGINT UNSIGNED ZEROFILL NOT NULL AUTO_INCREMENT", ".id", server.Fault, "zerofill", ""},
		{"time as text", "MODIFY next_retry_time VARCHAR(30)", ".next_retry_time", server.Fault, "DATETIME or TIMESTAMP", ""},
		{"missing topic", "DROP topic", ".topic", server.Fault, "no such column", ""},
		{"an age that starts again", "MODIFY created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", ".created_at", server.Warning, "ON UPDATE", ""},
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
				b := tabletest.New(t, flavor)
				b.Create("outbox")
				testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" "+c.alter)
				f := b.Finding(b.Mapping("outbox"), c.part)
				if f.Severity != c.severity || !strings.Contains(f.What, c.what) || f.Fix == "" {
					b.Fatalf("found %+v", f)
				}
				// A statement that fixes must do so.
				if strings.HasPrefix(f.Fix, "ALTER TABLE ") || strings.HasPrefix(f.Fix, "CREATE ") {
					testkit.Exec(b, b.DB, f.Fix)
					if f := b.Finding(b.Mapping("outbox"), c.part); f.Severity != "" {
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
			b := tabletest.New(t, flavor)
			m := b.Mapping("outbox")
			if f := b.Finding(m, ".outbox"); f.Severity != server.Fault || !strings.Contains(f.What, "no such table") {
				b.Errorf("missing: %+v", f)
			}
			b.Create("outbox")
			testkit.Exec(b, b.DB, "CREATE VIEW seen AS SELECT * FROM outbox")
			m.Name = "seen"
			if f := b.Finding(m, ".seen"); f.Severity != server.Fault || !strings.Contains(f.What, "view") {
				b.Errorf("view: %+v", f)
			}
		})
	}
}

func TestLoadChecksTheMapping(t *testing.T) {
	b := tabletest.New(t, testkit.MariaDB)
	b.Create("outbox")
	for name, c := range map[string]struct {
		change func(*table.Mapping)
		part   string
		what   string
	}{
		"no body":         {func(m *table.Mapping) { m.Set(table.Body, "") }, ".outbox", "body, which is needed"},
		"no topic":        {func(m *table.Mapping) { m.Set(table.Topic, "") }, ".outbox", "no column is mapped to topic"},
		"topic's column":  {func(m *table.Mapping) { m.SetTopic(table.TopicRule{Column: "kind", Prefix: "order."}) }, ".kind", "tables[].topic makes the topic of it"},
		"no message id":   {func(m *table.Mapping) { m.Set(table.Key, "") }, ".outbox", "no stable message id"},
		"wrong column":    {func(m *table.Mapping) { m.Set(table.Tag, "msg_tag") }, ".msg_tag", "mapped as the tag"},
		"twice":           {func(m *table.Mapping) { m.Set(table.Tag, "Fail_Reason") }, ".outbox", "has two roles, tag and fail_reason, and the relay writes fail_reason"},
		"both written":    {func(m *table.Mapping) { m.Set(table.SentAt, "last_exec_time") }, ".outbox", "has two roles, last_exec_time and sent_at, and the relay writes sent_at"},
		"code missing":    {func(m *table.Mapping) { delete(m.Codes, outbox.Sent) }, ".outbox", "sent, which is needed"},
		"consumer's code": {func(m *table.Mapping) { m.SetCode("consumed", "2") }, ".outbox", `"2" is mapped to sent and to consumed`},
		"code twice":      {func(m *table.Mapping) { m.Codes[outbox.Failed] = "2" }, ".outbox", `"2" is mapped to`},
		"word code":       {func(m *table.Mapping) { m.Codes[outbox.Failed] = "failed" }, ".status", "not a number"},
		"zone":            {func(m *table.Mapping) { m.TimeZone = "Mars/Olympus" }, ".outbox", "does not know the time zone"},
		"bad offset":      {func(m *table.Mapping) { m.TimeZone = "+25:00" }, ".outbox", "does not know the time zone"},
	} {
		m := b.Mapping("outbox")
		c.change(&m)
		if f := b.Finding(m, c.part); f.Severity != server.Fault || !strings.Contains(f.What, c.what) || f.Fix == "" {
			b.Errorf("%s: %+v", name, f)
		}
	}
}

// A message id names a message where no two rows can have the same one. A number may be in other tables too, so it names none.
func TestWhichMessageIDsNameAMessage(t *testing.T) {
	for _, c := range []struct {
		name, preset, alter string
		change              func(*table.Mapping)
		want                bool
	}{
		{"derived, with its index", "outbox", "", nil, true},
		{"derived, the primary key is appended", "outbox", "DROP INDEX uk_message", nil, true},
		{"a column with its index", "order-chain", "", nil, true},
		{"the primary key, a text", "local_message", "", nil, true},
		{"a column without an index", "order-chain", "DROP INDEX uk_message_id", nil, false},
		{"the primary key, a number", "outbox", "", func(m *table.Mapping) { m.Set(table.MessageID, "id") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := tabletest.New(t, testkit.MariaDB)
			b.Create(c.preset)
			m := b.Mapping(c.preset)
			if c.alter != "" {
				testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" "+c.alter)
			}
			if c.change != nil {
				c.change(&m)
			}
			b.LoadAsIs(m)
			if got := b.Table.NamesMessages(); got != c.want {
				t.Errorf("names messages: %v", got)
			}
		})
	}
}
