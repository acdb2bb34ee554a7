package store

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// The rows of every layout are found, claimed, read, refused, failed and sent, with what the table lacks replaced.
func TestEveryLayout(t *testing.T) {
	onLayouts(t, everyLayout)
}

func everyLayout(b *bench, l *layouts.Layout) {
	const rows = 5
	for n := 1; n <= rows; n++ {
		b.Add(l, n)
	}
	ids := map[int]outbox.Identity{}
	var messages []*outbox.Message
	for _, c := range b.due(table.DueQuery{Limit: 2}) { // pages of two: the key's own order carries from page to page
		if c.Untouched && !l.Has("claim") {
			b.Errorf("%+v says that no status update has touched it", c)
		}
		one, _ := b.publishable(c)
		messages = append(messages, one...)
	}
	if len(messages) != rows {
		b.Fatalf("%d of %d rows are published", len(messages), rows)
	}
	for n := 1; n <= rows; n++ {
		i := slices.IndexFunc(messages, func(m *outbox.Message) bool { return m.MessageID == l.MessageID(n) })
		if i < 0 {
			b.Fatalf("no message has the id %s: %+v", l.MessageID(n), messages[0])
		}
		m := messages[i]
		ids[n] = m.Identity
		if m.Topic != "orders" || string(m.Body) != fmt.Sprint("body ", n) || m.RetryCount != 0 || (m.Claim == "") != !l.Has("claim") {
			b.Errorf("message %+v", m)
		}
		if chain := slices.Contains(m.Headers, outbox.Header{Name: "messageId", Value: m.MessageID}); chain != (l.Name == "E") {
			b.Errorf("headers %+v", m.Headers)
		}
	}
	of := func(n int, action outbox.Action) outbox.Completion {
		return outbox.Completion{Identity: ids[n], Action: action, Delay: time.Hour, Reason: "no", BrokerID: "b-1", Claim: messages[0].Claim}
	}
	for range 2 { // a repeated statement counts once
		b.apply(of(1, outbox.ActionMarkSent), of(2, outbox.ActionRetry), of(3, outbox.ActionFail), of(4, outbox.ActionFail))
	}
	b.WantStatus(l, 1, "sent")
	if !b.Shows(l, 1, l.Written) {
		b.Errorf("the row that was sent does not show it: %s", l.Written)
	}
	if l.Name == "B" && !b.Shows(l, 1, "message_id = 'b-1'") {
		b.Error("the broker's id is not written back")
	}
	b.WantStatus(l, 2, "pending")
	if l.Has("attempts") && !b.Shows(l, 2, "retry_count = 1") {
		b.Error("the attempt is not counted")
	}
	final := "failed"
	if !l.Has("failed") {
		final = "pending"
	}
	b.WantStatus(l, 3, final)

	// What waits is not due, in another process neither.
	b.store = New(b.store.db, []*table.Table{b.Table}, b.store.waits, nil)
	states, err := b.store.States(b.Ctx, []outbox.Identity{ids[2], ids[3]})
	testkit.Must(b, err)
	for _, c := range states {
		if c.Status == outbox.Pending && (!c.Waiting || c.RetryCount != 1 || c.DueInMilli < 3500_000 || c.DueInMilli > 3601_000) {
			b.Errorf("a row that waits: %+v", c)
		}
	}
	for _, c := range b.due(table.DueQuery{Horizon: 2 * time.Hour, ExpiredClaims: time.Hour}) {
		if c.Identity != ids[5] && !c.Waiting {
			b.Errorf("due: %+v", c)
		}
		if got, _ := b.publishable(c); c.Waiting && len(got) > 0 {
			b.Errorf("published though it waits: %+v", c)
		}
	}

	if counts, err := b.query().Counts(b.Ctx); err != nil || counts[0].Delayed < 1 || counts[0].LongestRetry < time.Minute*59 {
		b.Errorf("counts %+v, %v", counts, err)
	}

	// A late acknowledgement, and then nothing is left of the row.
	b.apply(of(2, outbox.ActionMarkSent), of(3, outbox.ActionMarkSent), of(4, outbox.ActionMarkSent), of(5, outbox.ActionMarkSent))
	for n := 2; n <= rows; n++ {
		b.WantStatus(l, n, "sent")
	}
	if n, _ := b.store.waits.Waiting(b.table.Name(), time.Now()); n != 0 {
		b.Errorf("%d waits are left", n)
	}
}

// publishable claims one row and reads it back.
func (b *bench) publishable(c outbox.Candidate) ([]*outbox.Message, []outbox.Completion) {
	b.Helper()
	token, err := b.store.Claim(b.Ctx, []outbox.Candidate{c})
	testkit.Must(b, err)
	messages, rejected, err := b.store.ReadBack(b.Ctx, token, []outbox.Identity{c.Identity})
	testkit.Must(b, err)
	return messages, rejected
}

// Rows in states of the consumers are never touched, and are counted by their names.
func TestConsumersStates(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		var named []string
		for _, name := range []string{"consumed", "suspended"} {
			if l.Codes[name] != "" {
				named = append(named, name)
			}
		}
		var all []outbox.Completion
		for n, name := range named {
			b.Add(l, n+1)
			found := b.due(table.DueQuery{})
			testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET "+l.Status+" = ? WHERE "+l.Where(n+1), l.Codes[name])
			for _, action := range []outbox.Action{outbox.ActionMarkSent, outbox.ActionRetry, outbox.ActionFail} {
				all = append(all, outbox.Completion{Identity: found[0].Identity, Action: action})
			}
			if got, _ := b.publishable(found[0]); len(got) > 0 {
				b.Errorf("published a row that is %s", name)
			}
		}
		b.apply(all...)
		counts, err := b.query().Counts(b.Ctx)
		testkit.Must(b, err)
		for n, name := range named {
			b.WantStatus(l, n+1, name)
			if counts[0].States[name] != 1 {
				b.Errorf("counts %+v", counts[0])
			}
		}
		if counts[0].Rows[outbox.Held] != 0 {
			b.Errorf("counts %+v", counts[0])
		}
	})
}

// Words that the column cannot hold, or cannot tell apart, are refused.
func TestWordsOfTheStatus(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			b := newBench(t, flavor)
			b.Create("message-state")
			testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY state VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL")
			for name, c := range map[string]struct{ code, what string }{
				"sent":     {"pénding", `codes "pending" and "pénding" are one and the same for the column`},
				"failed":   {"Pending", `"Pending" is mapped to pending and to failed`},
				"consumed": {"fàiled", `codes "failed" and "fàiled" are one and the same`},
				"sending":  {"being sent", `code "being sent" of sending does not fit into varchar(8)`},
				"other":    {"sent  ", `codes "sent" and "sent  " are one and the same`},
			} {
				m := b.Mapping("message-state")
				m.SetCode("suspended", "") // of nine letters
				m.SetCode(name, c.code)
				_, findings, err := table.Load(b.Ctx, b.DB, m)
				testkit.Must(b, err)
				if !slices.ContainsFunc(findings, func(f server.Finding) bool {
					return f.Severity == server.Fault && strings.Contains(f.What, c.what) && f.Fix != ""
				}) {
					b.Errorf("%s: %+v", name, findings)
				}
			}
		})
	}
}

// Every spelling is found and reported; what a table lacks is reported with what it costs.
func TestSpellingsAndLacks(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		var said strings.Builder
		for _, f := range b.LoadAsIs(tabletest.MappingOf(b.Bench, l)) {
			fmt.Fprintln(&said, f.Severity, f.Subject, f.What)
		}
		for lack, what := range map[string]string{
			"claim": "only one relay may work on the table", "failed": "no code for FAILED", "due": "no column for the due time",
			"reason": "no column for the reason", "attempts": "no column for the attempts",
		} {
			if l.Has(lack) == strings.Contains(said.String(), what) {
				b.Errorf("has %s: %v, and it says:\n%s", lack, l.Has(lack), said.String())
			}
		}
		for name, what := range map[string]string{
			"A2": ".last_execute_time found as the last_exec_time", "E": ".update_time found as the last_exec_time",
		} {
			if l.Name == name && !strings.Contains(said.String(), what) {
				b.Errorf("it does not say %q:\n%s", what, said.String())
			}
		}
	})
}

// The log leaves the zero bytes at the end of a BINARY away, and without the column's character set the reader cannot tell that it did:
// both paths name the row alike.
func TestBinaryKeysArePadded(t *testing.T) {
	b := newBench(t, testkit.MariaDB)
	l := layouts.Binary()
	testkit.Exec(b, b.DB, l.Create())
	b.Quoted = "`" + b.Schema + "`.`" + l.Table + "`"
	b.LoadAsIs(tabletest.MappingOf(b.Bench, l))
	b.Add(l, 1)
	want := b.due(table.DueQuery{})[0].Identity
	key, err := hex.DecodeString(want.ID)
	testkit.Must(b, err)
	short := string(bytes.TrimRight(key, "\x00"))
	if len(short) != 13 || len(key) != 16 {
		b.Fatalf("a key of %d bytes with %d zeros", len(key), len(key)-len(short))
	}
	row := map[table.Column]string{table.ID: short, table.MessageID: short, table.Key: short, table.Topic: "1", table.Body: "x", table.StatusCode: "new"}
	values := make([]table.Value, len(b.table.Reads()))
	for i, role := range b.table.Reads() {
		text, found := row[role]
		values[i] = table.Value{Data: []byte(text), Null: !found}
	}
	if m, err := b.table.Message(values); err != nil || m.Identity != want || m.Key != want.ID {
		b.Errorf("%+v, %v, want %+v", m, err, want)
	}
}
