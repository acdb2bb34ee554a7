package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// flags are those of `checkpoint set` for the position that another reader of the log has kept, in that reader's form.
type flags func(l *logOnly, at outbox.Position) []string

func byFile(file string, pos uint64) []string {
	return []string{"--file", file, "--pos", fmt.Sprint(pos)}
}

// parsed fills a value from JSON.
func parsed[T any](t *testing.T, text string) (v T) {
	t.Helper()
	testkit.Must(t, json.Unmarshal([]byte(text), &v))
	return v
}

// debeziumOffset is the value of the connector's record in the topic of offsets.
func debeziumOffset(l *logOnly, at outbox.Position) []string {
	gtids := at.GTIDs
	offset := parsed[struct {
		File  string `json:"file"`
		Pos   uint64 `json:"pos"`
		GTIDs string `json:"gtids"`
	}](l.t, fmt.Sprintf(`{"transaction_id":null,"ts_sec":1795000000,"file":%q,"pos":%d,"gtids":%q,"server_id":1}`, at.File, at.Offset, gtids))
	if offset.GTIDs != "" {
		return []string{"--gtid", offset.GTIDs}
	}
	return byFile(offset.File, offset.Pos)
}

// canalCursor is the cursor in meta.dat.
func canalCursor(l *logOnly, at outbox.Position) []string {
	cursor := parsed[struct {
		Postion struct {
			JournalName string `json:"journalName"`
			Position    uint64 `json:"position"`
		} `json:"postion"`
	}](l.t, fmt.Sprintf(`{"identity":{"slaveId":-1},"postion":{"gtid":"","included":false,"journalName":%q,"position":%d,"serverId":1}}`, at.File, at.Offset))
	return byFile(cursor.Postion.JournalName, cursor.Postion.Position)
}

// maxwellRow is its row in the table positions.
func maxwellRow(l *logOnly, at outbox.Position) []string {
	l.exec("CREATE TABLE IF NOT EXISTS positions (server_id INT UNSIGNED NOT NULL, binlog_file VARCHAR(255), binlog_position INT UNSIGNED, " +
		"gtid_set VARCHAR(4096), client_id VARCHAR(255) NOT NULL DEFAULT 'maxwell', PRIMARY KEY (server_id, client_id))")
	l.exec("REPLACE INTO positions (server_id, binlog_file, binlog_position) VALUES (1, ?, ?)", at.File, at.Offset)
	var file string
	var pos uint64
	testkit.Must(l.t, l.sql.QueryRowContext(l.t.Context(), "SELECT binlog_file, binlog_position FROM positions WHERE client_id = 'maxwell'").Scan(&file, &pos))
	return byFile(file, pos)
}

// Switch from another reader of the log: a shadow that runs at the same time publishes nothing and records nothing as sent. The
// relay takes the position over and publishes the rows behind it, each once. If the position is older than the last row that the
// other reader has sent, the rows in between are sent again.
func TestSwitchFromAnotherReader(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		t.Parallel()
		l, _ := newLogOnly(t, flavor)
		l.exec("CREATE TABLE app_event (id BIGINT AUTO_INCREMENT PRIMARY KEY, target VARCHAR(64) NOT NULL, order_no VARCHAR(64) NOT NULL, body TEXT)")
		general := fmt.Sprintf("tables:\n  - {name: %s.app_event, preset: debezium-outbox, columns: {id: id, message_id: id, key: order_no, biz_type: \"\", body: body, "+
			"created_at: \"\"}, topic: \"outbox.event.{target}\"}\n", l.schema())
		l.Edit(t, "tables:\n", general)

		n := 0
		write := func() (from, to int) {
			for range 3 {
				n++
				l.event(n, "orders", deletes)
			}
			l.exec("INSERT INTO app_event (target, order_no, body) VALUES ('payments', ?, 'body')", fmt.Sprint("o-", n))
			return n - 2, n
		}
		general0 := 0
		for i, from := range []flags{debeziumOffset, canalCursor, maxwellRow} {
			if i == 0 {
				l.Start(t, "--shadow")
			}
			write() // the other reader sends these
			if i == 0 {
				l.wait("the shadow to see them", func() bool {
					s, err := l.Status()
					return err == nil && strings.Contains(s.Shadow, "7 are of tables without a status")
				})
				l.Kill()
			}
			at := relay.LogEnd(t, l.sql)
			first, last := write()
			args := append(append([]string{"checkpoint", "set"}, from(l, at)...), "--yes")
			if out, errOut, code := l.Command(t, args...); code != 0 {
				t.Fatalf("%v: exit %d: %s%s", args, code, out, errOut)
			}
			l.Start(t)
			copies := l.has("orders", first, last)
			for row := 1; row <= n; row++ {
				want := 0
				if (row-1)/3%2 == 1 { // behind a position
					want = 1
				}
				if got := copies[l.all[0].MessageID(row)]; got != want {
					t.Errorf("%d copies of row %d, want %d", got, row, want)
				}
			}
			general0++
			l.wait("the general table", func() bool { return len(relay.ReadAll(t, l.broker, l.topics[1])) == general0 })
			for _, r := range relay.ReadAll(t, l.broker, l.topics[1]) {
				if !strings.HasPrefix(r.Key, "o-") || string(r.Body) != "body" || r.BizType != "" || r.Headers["id"] != r.MessageID {
					t.Errorf("record %+v", r)
				}
			}
			l.stopInTime()
			if i == 2 { // an older position: what lies behind it comes again
				if out, errOut, code := l.Command(t, append(append([]string{"checkpoint", "set"}, from(l, at)...), "--yes")...); code != 0 ||
					!strings.Contains(out+errOut, "published again") {
					t.Errorf("exit %d: %s%s", code, out, errOut)
				}
				l.Start(t)
				l.wait("copies", func() bool { return l.has("orders", first, last)[l.all[0].MessageID(last)] == 2 })
				l.stopInTime()
			}
		}
	})
}
