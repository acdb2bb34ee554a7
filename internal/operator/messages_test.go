package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// rows is Rows in memory: its rows are those of shop.m, in the order of their keys.
type rows struct {
	names   []string
	all     []query.Row
	scan    string
	log     []server.Finding
	changed map[string][]string // ids by what was done
	applied func() error        // called by each change; nil for nothing
	states  func(context.Context, []outbox.Identity) ([]outbox.Candidate, error)
}

func (r *rows) tables(context.Context) (Rows, error) { return r, nil }

func (r *rows) operator() *Operator { return &Operator{Tables: r.tables} }

func (*rows) Counts(context.Context) ([]query.Counts, error) { return nil, nil }

func (r *rows) States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error) {
	return r.states(ctx, ids)
}

func (*rows) Grace(string) time.Duration { return 0 }

func (*rows) FailedEvery(string) time.Duration { return 0 }

func newRows(all ...query.Row) *rows {
	for i := range all {
		all[i].Identity = outbox.Identity{Table: "shop.m", ID: fmt.Sprint(i + 1), MessageID: fmt.Sprintf("order:k-%d", i+1)}
		all[i].Key, all[i].Topic, all[i].CreatedAt, all[i].Age = fmt.Sprintf("k-%d", i+1), "orders", now, time.Hour
		all[i].Failed, all[i].MaxRetry = all[i].Status == outbox.Failed, -1
		if all[i].Status != outbox.Held {
			all[i].State = all[i].Status.String()
		}
	}
	return &rows{names: []string{"shop.m"}, all: all, changed: map[string][]string{}}
}

func (r *rows) Names() []string { return r.names }

func (r *rows) StatesOf(string) []string {
	return []string{"pending", "sending", "sent", "failed", "consumed", "held", "delayed"}
}

func (r *rows) List(_ context.Context, _ string, q query.Listing) (page query.Listed, err error) {
	if r.scan != "" && !q.Scan {
		return query.Listed{Scan: r.scan}, nil
	}
	if q.After == "elsewhere" {
		return page, query.ErrCursor
	}
	for _, one := range r.all {
		wanted := one.State == q.State || q.State == query.AnyState || q.State == table.HeldState && one.State == "" || q.State == table.DelayedState && one.DueIn > 0
		if one.ID > q.After && wanted {
			if len(page.Rows) == min(q.Limit, 2) { // short pages
				page.Next = page.Rows[len(page.Rows)-1].ID
				break
			}
			page.Rows = append(page.Rows, one)
		}
	}
	return page, nil
}

func (r *rows) Find(_ context.Context, name, ref string, scan bool) (found query.Found, err error) {
	for _, one := range r.all {
		if name == one.Table && (one.ID == ref || one.MessageID == ref || one.Key == ref) {
			found.Rows = append(found.Rows, one)
		}
	}
	if !scan {
		found.Scan = r.scan
	}
	return found, nil
}

func (r *rows) Message(_ context.Context, id outbox.Identity) (*outbox.Message, error, error) {
	return &outbox.Message{Identity: id, Body: []byte("card 4711"), Headers: []outbox.Header{{Name: "a", Value: "b"}}}, nil, nil
}

func (r *rows) Count(context.Context, string) (query.Counts, error) {
	return query.Counts{Rows: map[outbox.Status]int64{outbox.Failed: 2}, States: map[string]int64{"consumed": 1}}, nil
}

func (r *rows) Breakdown(context.Context, string) (query.Breakdown, error) {
	return query.Breakdown{Topics: []query.GroupCounts{{Name: "orders", Failed: 2, Oldest: time.Minute}}, Types: []query.GroupCounts{{Name: "refund", Failed: 2}}, Reasons: []query.ReasonCount{{Reason: "no", Count: 2}}, Sampled: true}, nil
}

func (r *rows) change(what string, ids []outbox.Identity) (int64, error) {
	if r.applied != nil {
		if err := r.applied(); err != nil {
			return 0, err
		}
	}
	for _, id := range ids {
		r.changed[what] = append(r.changed[what], id.ID)
	}
	return int64(len(ids)), nil
}

func (r *rows) Retry(_ context.Context, ids []outbox.Identity) (int64, error) {
	return r.change("retry", ids)
}

func (r *rows) Republish(_ context.Context, ids []outbox.Identity) (int64, error) {
	return r.change("republish", ids)
}

func (r *rows) Discard(_ context.Context, ids []outbox.Identity) (int64, error) {
	return r.change("discard", ids)
}

func (r *rows) FailedLog(context.Context, string) ([]server.Finding, error) { return r.log, nil }

func codeOf(err error) Code {
	var coded *Error
	if errors.As(err, &coded) {
		return coded.Code
	}
	return ""
}

// several are rows 1 to 8 in every state that matters.
func several() *rows {
	return newRows(
		query.Row{Status: outbox.Failed, Attempts: 5, Reason: "no"},
		query.Row{Status: outbox.Pending, Attempts: 2, DueIn: time.Hour, Due: now.Add(time.Hour)},
		query.Row{Status: outbox.Pending, DueIn: time.Hour, Due: now.Add(time.Hour)},
		query.Row{Status: outbox.Pending},
		query.Row{Status: outbox.Sending},
		query.Row{Status: outbox.Sent},
		query.Row{Status: outbox.Held, Code: "9"},
		query.Row{Status: outbox.Failed, Attempts: 5},
	)
}

// An order by name takes what can be taken and says of every other row why not; then nothing at all is changed.
func TestOrdersByName(t *testing.T) {
	for _, c := range []struct {
		what, refs, republish string
		matched               int
		refused               map[string]string // part of the reason by ref
	}{
		{"retry", "1 order:k-2 8", "", 3, nil},
		{"retry", "1 1 order:k-1", "", 1, nil},
		{"retry", "1 3 4 5 6 7 k-8 99", "", 1, map[string]string{
			"3": "delayed message", "4": "PENDING and due", "5": "SENDING", "6": "--republish", "7": "status 9 is unknown to the relay; it never sends this row", "k-8": "business key", "99": "no such row",
		}},
		{"retry", "6", "yes", 1, nil},
		{"retry", "1 6", "yes", 1, map[string]string{"1": "only a message that is SENT"}},
		{"discard", "1 8", "", 2, nil},
		{"discard", "2 6", "", 0, map[string]string{"2": "only messages that have failed", "6": "only messages that have failed"}},
	} {
		r := several()
		swept := 0
		m := r.operator()
		m.StartSweep = func() error { swept++; return nil }
		order := MessageOrder{IDs: strings.Fields(c.refs), Republish: c.republish != "", DryRun: true}
		do := m.RetryMessages
		if c.what == "discard" {
			do = m.DiscardMessages
		}
		change, err := do(t.Context(), order)
		if err != nil || change.Matched != c.matched || change.Changed != 0 || len(r.changed) != 0 || swept != 0 || len(change.Refused) != len(c.refused) {
			t.Errorf("%s %s, dry: %+v, %v", c.what, c.refs, change, err)
		}
		for _, one := range change.Refused {
			if part := c.refused[one.Ref]; part == "" || !strings.Contains(one.Reason, part) {
				t.Errorf("%s %s: %+v", c.what, c.refs, one)
			}
		}
		order.DryRun = false
		change, err = do(t.Context(), order)
		if len(c.refused) > 0 {
			if codeOf(err) != CodeRefused || len(r.changed) != 0 || swept != 0 {
				t.Errorf("%s %s: %v was changed, %v", c.what, c.refs, r.changed, err)
			}
			continue
		}
		if err != nil || change.Changed != c.matched || (swept == 1) != (c.what == "retry") {
			t.Errorf("%s %s: %+v, %v, %d sweeps", c.what, c.refs, change, err, swept)
		}
	}
}

// An order by filter takes as many rows as the limit allows, and reports whether there are more.
func TestOrdersByFilter(t *testing.T) {
	r := several()
	m := r.operator()
	change, err := m.RetryMessages(t.Context(), MessageOrder{Filter: &MessageFilter{}, Limit: 1})
	if err != nil || change.Changed != 1 || !change.More || !slices.Equal(r.changed["retry"], []string{"1"}) {
		t.Errorf("one of two: %+v, %v", change, err)
	}
	change, err = m.RetryMessages(t.Context(), MessageOrder{Filter: &MessageFilter{Status: "pending"}})
	if err != nil || change.Matched != 1 || change.More || !slices.Equal(r.changed["retry"], []string{"1", "2"}) {
		t.Errorf("those that wait: %+v, %v, %v", change, err, r.changed)
	}
	if !slices.ContainsFunc(change.Notes, func(n string) bool { return strings.Contains(n, "no relay runs here") }) {
		t.Errorf("notes: %v", change.Notes)
	}
	for _, status := range []string{"sent", "sending", "consumed", "held", "any"} {
		if _, err := m.RetryMessages(t.Context(), MessageOrder{Filter: &MessageFilter{Status: status}}); codeOf(err) != CodeRefused {
			t.Errorf("retry of %s: %v", status, err)
		}
	}
	if _, err := m.RetryMessages(t.Context(), MessageOrder{Filter: &MessageFilter{}, Republish: true}); codeOf(err) != CodeRefused {
		t.Errorf("republish of what has failed: %v", err)
	}
	r.scan = "it would read 7 rows"
	if _, err := m.RetryMessages(t.Context(), MessageOrder{Filter: &MessageFilter{Topic: "x"}}); codeOf(err) != CodeNeedsScan {
		t.Errorf("a scan: %v", err)
	}
}

// Where the log of failed messages is missing, or nothing may be changed, an order is refused before anything else.
func TestOrdersThatAreRefused(t *testing.T) {
	r := several()
	r.log = []server.Finding{{Subject: "shop.m_failed", What: "there is no such table", Fix: "CREATE TABLE"}}
	m := r.operator()
	if _, err := m.DiscardMessages(t.Context(), MessageOrder{IDs: []string{"1"}, DryRun: true}); codeOf(err) != CodeRefused || !strings.Contains(err.Error(), "CREATE TABLE") {
		t.Errorf("no log: %v", err)
	}
	m.Refuse = Refusedf("a shadow changes nothing")
	if _, err := m.RetryMessages(t.Context(), MessageOrder{IDs: []string{"1"}}); codeOf(err) != CodeRefused || len(r.changed) != 0 {
		t.Errorf("a shadow: %v", err)
	}
}

// Bad questions have an answer of their own.
func TestQuestions(t *testing.T) {
	r := several()
	m := r.operator()
	for want, err := range map[Code]error{
		CodeUsage:    second(m.ListMessages(t.Context(), MessageQuery{Limit: 5, MessageFilter: MessageFilter{Status: "lost"}})),
		CodeNotFound: second(m.ShowMessages(t.Context(), MessageRef{Ref: "absent"})),
		"":           second(m.ShowMessages(t.Context(), MessageRef{Ref: "order:k-1"})),
	} {
		if codeOf(err) != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := m.ListMessages(t.Context(), MessageQuery{Limit: 5, After: "elsewhere"}); codeOf(err) != CodeUsage {
		t.Errorf("a place of another list: %v", err)
	}
	shown, err := m.ShowMessages(t.Context(), MessageRef{Ref: "k-1"})
	if err != nil || shown.Matches[0].Body != nil || shown.Matches[0].BodyBytes != 9 || shown.Matches[0].Headers[0] != (MessageHeader{Name: "a"}) {
		t.Errorf("masked: %+v, %v", shown, err)
	}
	shown, err = m.ShowMessages(t.Context(), MessageRef{Ref: "k-1", Body: true})
	if err != nil || *shown.Matches[0].Body != "card 4711" || *shown.Matches[0].Headers[0].Value != "b" || shown.Matches[0].BodyEncoding != "utf-8" {
		t.Errorf("with its body: %+v, %v", shown, err)
	}
	r.scan = "no index begins with the key"
	if _, err := m.TraceMessage(t.Context(), MessageRef{Ref: "absent"}); codeOf(err) != CodeNeedsScan {
		t.Errorf("not looked for: %v", err)
	}
	r.names = append(r.names, "shop.n")
	if _, err := m.ListMessages(t.Context(), MessageQuery{Limit: 5}); codeOf(err) != CodeUsage || !strings.Contains(err.Error(), "shop.n") {
		t.Errorf("two tables: %v", err)
	}
	none := (&rows{}).operator()
	if _, err := none.ListMessages(t.Context(), MessageQuery{Limit: 5}); codeOf(err) != CodeUsage || !strings.Contains(err.Error(), "has a status") {
		t.Errorf("no table: %v", err)
	}
	if _, err := none.ShowMessages(t.Context(), MessageRef{Ref: "17"}); codeOf(err) != CodeUsage {
		t.Errorf("no table: %v", err)
	}
	stats, err := m.MessageStats(t.Context(), "shop.m")
	if err != nil || stats.ByStatus["failed"] != 2 || stats.ByStatus["consumed"] != 1 || len(stats.Notes) != 1 || *stats.ByTopic[0].OldestAgeSeconds != 60 || stats.ByType[0].Type != "refund" {
		t.Errorf("stats: %+v, %v", stats, err)
	}
}

func second[T any](_ T, err error) error { return err }

// topic is a sink.Reader with the records of one topic.
type topic struct {
	records  []sink.Record
	from, to time.Time
	err      error
}

func (t *topic) Read(_ context.Context, _ string, from, to time.Time, each func(sink.Record) error) (sink.Extent, error) {
	t.from, t.to = from, to
	for _, r := range t.records {
		if err := each(r); err != nil {
			return sink.Extent{}, err
		}
	}
	return sink.Extent{}, t.err
}

// recorded is a line of the audit as the test compares it.
func recorded(c *Change) string {
	switch {
	case c.Unfinished:
		return "begin " + c.What + ", " + c.Before
	case c.Error != "":
		return "end " + c.After + ": " + c.Error
	}
	return "end " + c.After
}

// A change of rows is recorded before the first row is changed, with its filter and the number of rows, and completed after the last; one
// that goes wrong in the middle is completed with the error.
func TestG51_AChangeIsRecordedBeforeItsWork(t *testing.T) {
	for _, c := range []struct {
		fail error
		want []string
	}{
		{nil, []string{`begin messages retry {"filter":{"status":"failed"},"limit":100}, 2 rows of shop.m match`, "apply", "end 2 of 2 rows of shop.m were retried"}},
		{errors.New("the database is away"), []string{`begin messages retry {"filter":{"status":"failed"},"limit":100}, 2 rows of shop.m match`, "apply", "end 0 of 2 rows of shop.m were retried: 0 of 2 messages were retried, then: the database is away"}},
	} {
		var did []string
		r := several()
		r.applied = func() error { did = append(did, "apply"); return c.fail }
		m := r.operator()
		m.Record = func(c *Change) error { did = append(did, recorded(c)); return nil }
		order := MessageOrder{Filter: &MessageFilter{Status: "failed"}}
		if _, err := m.RetryMessages(t.Context(), order); !errors.Is(err, c.fail) || !slices.Equal(did, c.want) {
			t.Errorf("%q, want %q (%v)", did, c.want, err)
		}
		did, order.DryRun = nil, true
		if _, err := m.RetryMessages(t.Context(), order); err != nil || len(did) != 0 {
			t.Errorf("a dry run: %q, %v", did, err)
		}
	}
	var did []string
	r := several()
	r.applied = func() error { did = append(did, "apply"); return nil }
	republish := r.operator()
	republish.Record = func(c *Change) error { did = append(did, recorded(c)); return nil }
	missing := MessageOrder{Republish: true, Rows: []MessageRow{{ID: "1", MessageID: "order:k-1"}, {ID: "2", MessageID: "order:k-2"}}}
	want := []string{"begin reconcile --republish, 2 rows of shop.m match", "apply", "end 2 of 2 rows of shop.m were published again"}
	if _, err := republish.RetryMessages(t.Context(), missing); err != nil || !slices.Equal(did, want) {
		t.Errorf("%q, want %q (%v)", did, want, err)
	}
	if _, err := republish.DiscardMessages(t.Context(), MessageOrder{Rows: missing.Rows}); err == nil {
		t.Error("rows were discarded that were named as missing")
	}
	r = several()
	full := errors.New("the disk is full")
	m := r.operator()
	m.Record = func(*Change) error { return full }
	if _, err := m.DiscardMessages(t.Context(), MessageOrder{IDs: []string{"1"}}); !errors.Is(err, full) || len(r.changed) != 0 {
		t.Errorf("what cannot be recorded was done: %v, %v", r.changed, err)
	}
}
