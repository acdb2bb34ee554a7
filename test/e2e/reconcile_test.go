package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/reconcile"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Tables and topics are equal after ordinary work, with a running relay and without one. Each difference that is made by hand is
// found, reported by its kind, and makes the command exit with 1.
func TestG51_Reconcile(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newStage(t, testkit.SharedDatabase(t, flavor), fake(t), frequentSweeps)
		l.Start(t)
		l.load.Run(t, 400, 3)
		l.settled()
		if r := l.reconciled(0); !r.Equal || r.Missing == nil || r.Notes == nil {
			t.Errorf("after ordinary work: %+v", r)
		}
		wait := l.load.Start(t, 600, 3)
		for range 3 { // rows come and are sent all the time
			l.reconciled(0, "--table", l.table.FullName())
		}
		wait()
		l.settled()
		l.stopInTime()
		before := l.reconciled(0)

		l.differ()
		r := l.reconciled(1)
		sums := func(r reconcile.Report) (g reconcile.Group) {
			for _, one := range r.Tables {
				g.Rows, g.Missing, g.Repeated = g.Rows+one.Rows, g.Missing+one.Missing, g.Repeated+one.Repeated
				g.Copies, g.Different, g.NotSent = g.Copies+one.Copies, g.Different+one.Different, g.NotSent+one.NotSent
				g.Sent, g.Failed = g.Sent+one.Sent, g.Failed+one.Failed
			}
			return g
		}
		was := sums(before)
		want := reconcile.Group{
			Rows: was.Rows + 3 - 1, Sent: was.Sent + 1 - 1, NotSent: 1, Failed: 1, Missing: 1, Repeated: 1, Copies: 2, Different: 1,
		}
		if got := sums(r); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
		if len(r.Missing) != 1 || r.Missing[0].MessageID != "order:never" || r.Missing[0].ID == "" || len(r.Repeated) != 1 || r.Repeated[0].Copies != 3 ||
			len(r.Different) != 1 || r.Equal {
			t.Errorf("report %+v", r)
		}
		var extra []string
		for _, m := range r.Extra {
			extra = append(extra, m.MessageID)
		}
		if len(extra) != 2 || !slices.Contains(extra, "foreign") || r.Topics[0].WithoutID+r.Topics[1].WithoutID != 1 {
			t.Errorf("extra %v, topics %+v", extra, r.Topics)
		}
		out, _, code := l.Command(t, "reconcile", "--from", "1h", "--limit", "1", "--ignore-extra")
		if code != 1 || !strings.Contains(out, "not equal") || !strings.Contains(out, `"order:never" of orders`) || strings.Contains(out, "foreign") {
			t.Errorf("code %d:\n%s", code, out)
		}
		if again := l.reconciled(1, "--republish"); again.Republished != 1 {
			t.Errorf("%d rows were set back", again.Republished)
		}
		l.auditedRepublish(1)
		l.Start(t)
		l.waitCount(0, "status IN (0, 1)")
		if r := l.reconciled(1); len(r.Missing) != 0 || sums(r).Missing != 0 || l.published(topics[0])["never"] != 1 {
			t.Errorf("what was missing is not published: %+v", r)
		}
		l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, status) VALUES ('order', 'lost', ?, 'x', 2)", topics[0])
		if again := l.reconciled(1, "--republish"); again.Republished != 1 {
			t.Errorf("%d rows were set back", again.Republished)
		}
		l.auditedRepublish(2)
		l.stopInTime()
		if r := l.reconciled(0, "--topic", "payments", "--to", "59m"); len(r.Tables) != 0 || len(r.Topics) != 1 {
			t.Errorf("of a window without rows: %+v", r)
		}
	})
}

// differ makes one difference of each kind, and what is none.
func (l *stage) differ() {
	l.t.Helper()
	names := l.sentRows(3)
	twice, changed, deleted := names[0], names[1], names[2]
	for _, row := range []struct{ key, status string }{{"never", "2"}, {"later", "0"}, {"refused", "3"}} {
		l.row(row.key, topics[0], "x")
		l.exec("UPDATE t_local_message SET status = "+row.status+" WHERE biz_key = ?", row.key)
	}
	l.exec("UPDATE t_local_message SET message_body = 'another' WHERE CONCAT(biz_type, ':', biz_key) = ?", changed.MessageID)
	l.exec("DELETE FROM t_local_message WHERE CONCAT(biz_type, ':', biz_key) = ?", deleted.MessageID)
	l.produce(twice, twice, record{Topic: topics[1], MessageID: "foreign", Body: []byte("x")}, record{Topic: topics[1], Body: []byte("x")})
}

type record struct {
	Topic, MessageID string
	Body             []byte
}

// sentRows are some that are in the broker.
func (l *stage) sentRows(n int) (found []record) {
	l.t.Helper()
	rows, err := l.sql.Query("SELECT topic, CONCAT(biz_type, ':', biz_key), message_body FROM t_local_message WHERE status = 2 AND message_body <> '' LIMIT ?", n)
	testkit.Must(l.t, err)
	defer rows.Close()
	for rows.Next() {
		var r record
		testkit.Must(l.t, rows.Scan(&r.Topic, &r.MessageID, &r.Body))
		found = append(found, r)
	}
	testkit.Must(l.t, rows.Err())
	return found
}

// produce stores records as another producer would.
func (l *stage) produce(records ...record) {
	l.t.Helper()
	_, addr, _ := strings.Cut(l.broker.Sink(), `["`)
	addr, _, _ = strings.Cut(addr, `"`)
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	testkit.Must(l.t, err)
	defer client.Close()
	for _, r := range records {
		one := &kgo.Record{Topic: r.Topic, Value: r.Body}
		if r.MessageID != "" {
			one.Headers = []kgo.RecordHeader{{Key: "message_id", Value: []byte(r.MessageID)}}
		}
		testkit.Must(l.t, client.ProduceSync(l.t.Context(), one).FirstErr())
	}
}

// reconciled runs the command over the last hour and reads its report.
func (l *stage) reconciled(want int, args ...string) (r reconcile.Report) {
	l.t.Helper()
	out, errOut, code := l.Command(l.t, append([]string{"reconcile", "--from", "1h", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &r); code != want || err != nil {
		l.t.Errorf("reconcile %v: code %d, %v\n%s%s", args, code, err, out, errOut)
	}
	return r
}

// auditedRepublish checks that the audit lists a number of finished changes that published one row of the table again.
func (l *stage) auditedRepublish(n int) {
	l.t.Helper()
	out, errOut, code := l.Command(l.t, "audit", "-o", "json")
	var all []operator.Change
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 || len(all) != n {
		l.t.Fatalf("the audit lists %d changes, want %d; code %d, %v\n%s%s", len(all), n, code, err, out, errOut)
	}
	for _, c := range all {
		if c.Unfinished || !strings.HasPrefix(c.What, "reconcile --republish") || !strings.HasPrefix(c.Before, "1 rows of ") || !strings.HasPrefix(c.After, "1 of 1 rows of ") {
			l.t.Errorf("%+v", c)
		}
	}
}

// What is wrong with the request is reported before anything is read.
func TestReconcileRefusesBadRequests(t *testing.T) {
	t.Parallel()
	l := newStage(t, testkit.SharedMySQL(t), fake(t), "")
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "--from is missing"},
		{[]string{"--from", "yesterday"}, 2, `--from "yesterday": is neither a time with its zone`},
		{[]string{"--from", "2026-01-02 15:04:05"}, 2, "is neither a time with its zone"},
		{[]string{"--from", "1h", "--to", "2h"}, 2, "is not before --to"},
		{[]string{"--from", future}, 2, "is not before --to"},
		{[]string{"--from", "1960-01-02T15:04:05Z"}, 2, "before 1970"},
		{[]string{"--from", "1h", "--margin", "-1s"}, 2, "--margin -1s: must not be negative"},
		{[]string{"--from", "1h", "--limit", "-1"}, 2, "--limit -1"},
		{[]string{"--from", "1h", "--table", "shop.other"}, 2, fmt.Sprintf("--table shop.other: is not mapped; mapped are %s", l.table.FullName())},
		{[]string{"--from", "1h", "--topic", "no.such.topic"}, 1, "no.such.topic"},
	} {
		_, errOut, code := l.Command(t, append([]string{"reconcile"}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: code %d, %s", c.args, code, errOut)
		}
	}
	l.exec("ALTER TABLE t_local_message DROP INDEX uk_message")
	l.exec("ALTER TABLE t_local_message DROP COLUMN created_at")
	if _, errOut, code := l.Command(t, "reconcile", "--from", "1h"); code != 1 || !strings.Contains(errOut, "tables[].columns.created_at") {
		t.Errorf("without a creation time: code %d, %s", code, errOut)
	}
}
