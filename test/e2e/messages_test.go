package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// desk is an operator at the command line of a relay.
type desk struct {
	*lab
	r *relay.Relay
}

// ask runs a command and wants its exit code.
func (d *desk) ask(code int, args ...string) string {
	d.t.Helper()
	out, errOut, got := d.r.Command(d.t, append([]string{"messages"}, args...)...)
	if got != code {
		d.t.Errorf("messages %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errOut)
	}
	return out + errOut
}

// failed waits until a row is FAILED.
func (d *desk) failed(key string) {
	d.t.Helper()
	d.wait(key+" to be FAILED", func() bool {
		n := d.number("SELECT COUNT(*) FROM t_local_message WHERE biz_key = ? AND status = 3", key)
		return n == 1
	})
}

// P10: a message fails; the operator finds it, explains it, mends the cause, retries it, and it is SENT; another one is given up. The same
// commands work while no relay runs.
func TestP10_OneMessage(t *testing.T) {
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, testkit.SharedDatabase(t, flavor))
			d := &desk{l, l.child()}
			d.r.Start(t)
			for _, key := range []string{"bad", "worse", "third"} {
				l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', ?, 'orders/ü', ?)", key, body(key))
			}
			l.commit("good")
			for _, key := range []string{"bad", "worse", "third"} {
				d.failed(key)
			}
			d.find()
			d.refused()

			l.exec("UPDATE t_local_message SET topic = 'orders' WHERE biz_key <> 'worse'") // the cause is mended
			contains(t, d.ask(0, "retry", "order:bad", "--yes"), "1 message now PENDING again")
			l.wait("the message to be SENT", func() bool {
				n := l.number("SELECT COUNT(*) FROM t_local_message WHERE biz_key = 'bad' AND status = 2")
				return n == 1
			})
			contains(t, d.ask(0, "trace", "order:bad"), "is SENT", "published", "topic orders, partition", "offset", "written", "in_log", "waits for nothing")

			d.giveUp("worse")
			d.r.Stop(t)
			contains(t, d.ask(0, "list"), "order:third")
			contains(t, d.ask(0, "trace", "third"), "no relay answers here")
			contains(t, d.ask(0, "stats"), "failed   1")
			contains(t, d.ask(0, "retry", "--key", "third", "--yes"), "1 message now", "no relay runs here")
			d.r.Start(t)
			l.sent()
			l.compare("bad", "good", "third")
			d.r.Stop(t)
		})
	}
}

// find finds the failed messages and explains one, by every name it has.
func (d *desk) find() {
	t := d.t
	t.Helper()
	var first, page operator.MessagePage
	testkit.Must(t, json.Unmarshal([]byte(d.ask(0, "list", "--limit", "2", "-o", "json")), &first))
	if len(first.Messages) != 2 || first.Next == "" || first.Messages[0].Status != "failed" || !strings.Contains(first.Messages[0].Reason, "topic") {
		t.Fatalf("the first page: %+v", first)
	}
	testkit.Must(t, json.Unmarshal([]byte(d.ask(0, "list", "--limit", "2", "--after", first.Next, "-o", "json")), &page))
	if len(page.Messages) != 1 || page.Messages[0].ID == first.Messages[0].ID || page.Messages[0].ID == first.Messages[1].ID {
		t.Fatalf("the second page: %+v", page)
	}
	for _, name := range []string{first.Messages[0].ID, first.Messages[0].MessageID, first.Messages[0].Key} {
		shown := d.ask(0, "show", name)
		contains(t, shown, first.Messages[0].MessageID, "failed (3)", "bytes; --body shows it")
		if strings.Contains(shown, "body of") {
			t.Errorf("the body is shown: %s", shown)
		}
		contains(t, d.ask(0, "trace", name), "is FAILED", "inserted", "failed", "topic", "waits for: a decision")
	}
	contains(t, d.ask(0, "show", "order:bad", "--body"), "body of bad")
	contains(t, d.ask(0, "list", "--reason", "TOPIC", "--topic", "orders/ü"), "order:bad", "order:worse", "order:third")
	contains(t, d.ask(0, "stats"), "failed", "orders/ü")
}

// refused are commands that change nothing, each with the exit code of its kind.
func (d *desk) refused() {
	t := d.t
	t.Helper()
	d.sweptOnce()
	before := d.tampered()
	contains(t, d.ask(3, "retry", "order:good", "order:bad", "--yes"), "order:good: it is SENT", "nothing was changed")
	contains(t, d.ask(3, "retry", "order:bad"), "--yes")
	contains(t, d.ask(3, "retry", "--status", "sent", "--yes"), "cannot be retried")
	contains(t, d.ask(3, "discard", "order:worse", "--yes"), "CREATE TABLE IF NOT EXISTS")
	contains(t, d.ask(2, "list", "--status", "lost"), "pending, sending, sent, failed")
	contains(t, d.ask(2, "list", "--after", "nowhere"), "none of this list")
	contains(t, d.ask(1, "show", "unknown"), "no row of")
	contains(t, d.ask(0, "retry", "--status", "failed", "--dry-run"), "3 messages would be changed")
	if after := d.tampered(); after != before {
		t.Errorf("something was changed: %s, then %s", before, after)
	}
}

// sweptOnce waits until the row that is good is SENT, so that nothing changes any more by itself.
func (d *desk) sweptOnce() {
	d.t.Helper()
	d.wait("the good row to be SENT", func() bool {
		n := d.number("SELECT COUNT(*) FROM t_local_message WHERE status = 2")
		return n == 1
	})
}

// giveUp makes the failed-message log as the refusal says, and discards a message.
func (d *desk) giveUp(key string) {
	t := d.t
	t.Helper()
	refusal := d.ask(3, "discard", "order:"+key, "--yes")
	_, statements, _ := strings.Cut(refusal, "let an administrator run:\n")
	for _, statement := range strings.Split(strings.TrimSpace(statements), ";\n") {
		testkit.Exec(t, d.sql, strings.TrimSuffix(statement, ";"))
	}
	contains(t, d.ask(0, "discard", "order:"+key, "--yes"), "1 message now in the failed-message log")
	var left, moved int
	testkit.Must(t, d.sql.QueryRow("SELECT COUNT(*) FROM t_local_message WHERE biz_key = ?", key).Scan(&left))
	testkit.Must(t, d.sql.QueryRow("SELECT COUNT(*) FROM t_local_message_failed WHERE biz_key = ? AND message_body = ?", key, body(key)).Scan(&moved))
	if left != 0 || moved != 1 {
		t.Errorf("%d rows left, %d in the log", left, moved)
	}
}

// An account with the relay's usual privileges reads and retries messages; the additional privileges for a discard are named
// when it is requested.
func TestMessagesWithFewPrivileges(t *testing.T) {
	t.Parallel()
	l := newLab(t, testkit.SharedMySQL(t))
	l.user = "clerk"
	testkit.Must(t, l.db.CreateUser(context.Background(), l.user, "", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT, UPDATE ON "+l.schema+".*"))
	t.Cleanup(func() { testkit.Exec(t, l.db.Root(), "DROP USER clerk") })
	for _, statement := range []string{"CREATE TABLE t_local_message_failed LIKE t_local_message", "ALTER TABLE t_local_message_failed ADD COLUMN moved_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"} {
		l.exec(statement)
	}
	if !slices.ContainsFunc(app.Doctor(context.Background(), l.config()), func(f server.Finding) bool {
		return f.Severity == server.Warning && strings.Contains(f.What, "cannot be discarded") && strings.Contains(f.Fix, "GRANT DELETE ON")
	}) {
		t.Error("doctor does not say which privilege a discard needs")
	}
	l.start()
	l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, status) VALUES ('order', 'a', 'orders', 'body of a', 3)")
	ctx, order := context.Background(), operator.MessageOrder{IDs: []string{"order:a"}}
	_, err := l.admin().DiscardMessages(ctx, order)
	contains(t, fmt.Sprint(err), "cannot be discarded", "GRANT SELECT, INSERT ON `"+l.schema+"`.`t_local_message_failed`")
	change, err := l.admin().RetryMessages(ctx, order)
	if err != nil || change.Changed != 1 {
		t.Errorf("%+v, %v", change, err)
	}
	l.account("a")
}
