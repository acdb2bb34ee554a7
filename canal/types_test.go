package canal

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// typedDDL uses the types that a role may have, among columns of many other types.
const typedDDL = `CREATE TABLE t_local_message (
	f1 DECIMAL(30,10) NULL DEFAULT 1.5, f2 FLOAT DEFAULT 2.5, f3 DOUBLE NULL, f4 BIT(11) DEFAULT b'101', f5 YEAR DEFAULT 2026,
	id %s NOT NULL AUTO_INCREMENT PRIMARY KEY,
	f6 ENUM('a','b') DEFAULT 'b', f7 SET('x','y','z') DEFAULT 'x,z', f8 TIME(3) DEFAULT '-12:34:56.789', f9 DATE DEFAULT '2026-02-03',
	biz_type CHAR(10) NOT NULL, biz_key VARCHAR(300) NOT NULL, topic VARCHAR(128) NOT NULL, tag CHAR(200) NULL,
	f10 BINARY(8) DEFAULT 'ab', f11 TINYBLOB, f12 GEOMETRY NULL, f13 INT GENERATED ALWAYS AS (retry_count + 1) VIRTUAL,
	message_body %s NULL, status TINYINT NOT NULL DEFAULT 0, retry_count SMALLINT NOT NULL DEFAULT 0, max_retry MEDIUMINT NULL,
	f14 INT GENERATED ALWAYS AS (retry_count + 2) STORED, headers %s NULL,
	next_retry_time %s NULL, last_exec_time DATETIME(6) NULL, fail_reason VARCHAR(512) NULL, created_at %s NULL,
	UNIQUE KEY uk_biz (biz_type, biz_key), KEY idx_status (status, next_retry_time))`

// A48, A59: both paths make the same message from a row, whatever the types of its columns.
func TestA48_SameMessageAsTheSweep(t *testing.T) {
	variants := []struct{ id, body, headers, due, created string }{
		{"BIGINT UNSIGNED", "LONGTEXT", "TEXT", "DATETIME", "DATETIME(3)"},
		{"INT", "VARBINARY(5000)", "JSON", "TIMESTAMP", "TIMESTAMP(6)"},
		{"MEDIUMINT UNSIGNED", "MEDIUMBLOB", "VARCHAR(2000)", "TIMESTAMP(2)", "DATETIME(5)"},
		{"SMALLINT", "TINYTEXT", "BLOB", "DATETIME(1)", "TIMESTAMP(4)"},
	}
	eachMetadata(t, func(t *testing.T, l *lab) {
		db, err := server.Open(server.Config{Address: l.db.Addr(), User: "root"}, nil, server.Session{Writes: true})
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, db.Close()) })
		for _, v := range variants {
			l.exec("DROP TABLE t_local_message")
			l.exec(fmt.Sprintf(typedDDL, v.id, v.body, v.headers, v.due, v.created))
			l.load()
			l.rec = nil
			l.start(l.end())
			insert := "INSERT INTO t_local_message (biz_type, biz_key, topic, tag, message_body, max_retry, headers, next_retry_time, created_at, f3, f11, f12) VALUES "
			l.exec(insert + `('order', 'plain', 'orders', 'tag ', 'a body', 7, '{"n": "v", "k": 1}', '2026-01-02 03:04:05.6', '2026-01-02 03:04:05.123456', NULL, 'x', NULL)`)
			l.exec(insert + `('', 'empty   ', 't', '', '', -1, NULL, NULL, NULL, 1e300, REPEAT('y', 255), ST_GeomFromText('POINT(1 2)'))` + `, ('Ärger', 'schlüssel 中文 😀', 'orders', NULL, NULL, NULL, '{}', '2000-02-29 23:59:59.99', '1999-12-31 23:59:59.999999', 0, NULL, NULL)`)
			l.fence2()
			compare(t, l, store.New(db, []*table.Table{l.table}, nil, nil))
			l.stop()
		}
	})
}

// fence2 waits for the end of the log; rows of a typed table may be deferred.
func (l *lab) fence2() {
	l.t.Helper()
	l.caughtUp()
	if causes := l.rec.causes(); causes[outbox.CauseUnmapped] > 1 { // a row without biz_type is no message on either path
		l.t.Fatalf("deferred %v", causes)
	}
}

// compare claims the rows and reads them as the sweep does.
func compare(t *testing.T, l *lab, store *store.Store) {
	t.Helper()
	var rows []outbox.Candidate
	var ids []outbox.Identity
	for _, m := range l.rec.sent() {
		rows = append(rows, outbox.Candidate{Identity: m.Identity, Status: outbox.Pending})
		ids = append(ids, m.Identity)
	}
	stamp, err := store.Claim(context.Background(), rows)
	testkit.Must(t, err)
	swept, _, err := store.ReadBack(context.Background(), stamp, ids)
	testkit.Must(t, err)
	if len(swept) != len(ids) || len(ids) < 2 {
		t.Fatalf("%d rows from the log, %d read back", len(ids), len(swept))
	}
	for _, m := range l.rec.sent() {
		i := slices.IndexFunc(swept, func(s *outbox.Message) bool { return s.Identity == m.Identity })
		if i < 0 {
			t.Fatalf("row %v was not read back", m.Identity)
		}
		if a, b := describe(m), describe(swept[i]); a != b {
			t.Errorf("log   %s\ntable %s", a, b)
		}
	}
}

func describe(m *outbox.Message) string {
	return fmt.Sprintf("%q %q %q %q %q %q %v body %v %q due %s created %s budget %d", m.ID, m.MessageID, m.Topic, m.Tag, m.Key, m.ShardingKey,
		m.Headers, m.Body == nil, bytes.TrimSpace(m.Body), m.DueAt.UTC().Format(time.RFC3339Nano), m.CreatedAt.UTC().Format(time.RFC3339Nano), m.MaxRetry)
}
