package reconcile

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

var (
	noon     = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	tomorrow = noon.Add(24 * time.Hour)
)

// world replaces the tables and the broker.
type world struct {
	now     time.Time
	rows    []*outbox.Message
	faulty  map[string]int // tables with rows that are no messages
	topics  map[string][]sink.Record
	cut     map[string]bool
	compact map[string]bool
	lookups int
}

func (w *world) Now(context.Context) (time.Time, error) { return w.now, nil }

func (w *world) Rows(_ context.Context, table string, from, to time.Time, each func(*outbox.Message, error) error) error {
	for range w.faulty[table] {
		if err := each(&outbox.Message{Identity: outbox.Identity{Table: table}}, errors.New("no topic")); err != nil {
			return err
		}
	}
	for _, m := range w.rows {
		if m.Table != table || m.CreatedAt.Before(from) || !m.CreatedAt.Before(to) {
			continue
		}
		if err := each(m, nil); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) HasMessages(_ context.Context, ids []string) (map[string]bool, error) {
	w.lookups++
	found := map[string]bool{}
	for _, m := range w.rows {
		if slices.Contains(ids, m.MessageID) {
			found[m.MessageID] = true
		}
	}
	return found, nil
}

func (w *world) Read(_ context.Context, topic string, from, to time.Time, each func(sink.Record) error) (sink.Extent, error) {
	for _, r := range w.topics[topic] {
		if r.At.Before(from) || !to.IsZero() && !r.At.Before(to) {
			continue
		}
		if err := each(r); err != nil {
			return sink.Extent{}, err
		}
	}
	return sink.Extent{Shortened: w.cut[topic], Compacted: w.compact[topic]}, nil
}

func row(id string, status outbox.Status, made time.Duration) *outbox.Message {
	return &outbox.Message{
		Identity: outbox.Identity{Table: "shop.t", ID: "1" + id, MessageID: id}, Topic: "orders", Body: []byte("body of " + id),
		Status: status, CreatedAt: noon.Add(made),
	}
}

func stored(id string, after time.Duration) sink.Record {
	return sink.Record{MessageID: id, Body: []byte("body of " + id), At: noon.Add(after), Position: "partition 0 offset " + id}
}

func (w *world) compare(t *testing.T, change func(*Request)) Report {
	t.Helper()
	req := Request{From: noon, To: noon.Add(time.Hour), Tables: []string{"shop.t"}, Margin: time.Hour, Limit: 3}
	if change != nil {
		change(&req)
	}
	r, err := Run(t.Context(), req, w, w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ids(list []Message) string {
	var all []string
	for _, m := range list {
		all = append(all, m.MessageID)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Each kind of difference, and each of what looks like one and is none.
func TestKinds(t *testing.T) {
	foreign := stored("", 0)
	changed := stored("5", time.Minute)
	changed.Body = []byte("another")
	w := &world{now: tomorrow, faulty: map[string]int{"shop.t": 2}, rows: []*outbox.Message{
		row("1", outbox.Sent, 0), row("2", outbox.Sent, 0), row("3", outbox.Pending, 0), row("4", outbox.Sent, 0), row("5", outbox.Sent, 0),
		row("6", outbox.Failed, 0), row("7", outbox.Held, 0), row("8", outbox.Sending, 0), row("9", outbox.Sent, 0),
		row("a", outbox.Sent, -time.Minute), row("b", outbox.Sent, time.Hour), // before and behind the window
	}, topics: map[string][]sink.Record{"orders": {
		stored("1", time.Minute), stored("4", time.Minute), changed, stored("4", 2*time.Minute), stored("4", 70*time.Minute), // in the margin
		stored("8", time.Minute), // sent, and not written to the table yet
		stored("9", 5*time.Hour), // long after its row
		stored("a", time.Minute), stored("b", time.Hour), foreign,
		stored("gone", time.Minute), stored("old", -time.Minute), // what has no row is reported in the window only
	}}}
	r := w.compare(t, nil)
	want := Group{
		Table: "shop.t", Topic: "orders", Rows: 9, Sent: 5, NotSent: 2, Failed: 1, Held: 1, Missing: 1, Repeated: 1, Copies: 2, Different: 1,
	}
	if len(r.Tables) != 2 || r.Tables[1] != want || r.Tables[0] != (Group{Table: "shop.t", Rows: 2, Faulty: 2}) {
		t.Errorf("tables %+v", r.Tables)
	}
	if len(r.Topics) != 1 || r.Topics[0] != (Topic{Topic: "orders", Records: 12, Extra: 1, WithoutID: 1}) {
		t.Errorf("topics %+v", r.Topics)
	}
	if r.Equal || ids(r.Missing) != "2" || ids(r.Extra) != "gone" || ids(r.Repeated) != "4" || ids(r.Different) != "5" {
		t.Errorf("report %+v", r)
	}
	if m := r.Missing[0]; m.ID != "12" || m.Table != "shop.t" || m.Topic != "orders" {
		t.Errorf("missing %+v", m)
	}
	if m := r.Repeated[0]; m.Copies != 3 || m.Place == "" {
		t.Errorf("repeated %+v", m)
	}
	w.topics["orders"] = []sink.Record{stored("gone", time.Minute)}
	w.rows = nil
	if r := w.compare(t, func(q *Request) { q.Topics, q.IgnoreExtra = []string{"orders"}, true }); !r.Equal {
		t.Errorf("not equal without the records that have no row: %+v", r)
	}
}

// What the broker keeps until it is due is not sent yet.
func TestDelayedByTheBroker(t *testing.T) {
	m := row("1", outbox.Sent, 0)
	m.DueAt = noon.Add(48 * time.Hour)
	w := &world{now: tomorrow, rows: []*outbox.Message{m}}
	if r := w.compare(t, nil); !r.Equal || r.Tables[0].NotSent != 1 {
		t.Errorf("report %+v", r)
	}
	w.now = m.DueAt
	if r := w.compare(t, nil); r.Equal || r.Tables[0].Missing != 1 {
		t.Errorf("report when it was due: %+v", r)
	}
}

// NULL is not the same as an empty body.
func TestNullAndEmptyBodies(t *testing.T) {
	for _, c := range []struct {
		row, record []byte
		equal       bool
	}{{nil, nil, true}, {[]byte{}, []byte{}, true}, {nil, []byte{}, false}, {[]byte{}, nil, false}} {
		m, r := row("1", outbox.Sent, 0), stored("1", 0)
		m.Body, r.Body = c.row, c.record
		w := &world{now: tomorrow, rows: []*outbox.Message{m}, topics: map[string][]sink.Record{"orders": {r}}}
		if got := w.compare(t, nil); got.Equal != c.equal {
			t.Errorf("%v in the table, %v in the topic: %+v", c.row, c.record, got)
		}
	}
}

// A topic whose retention has removed the beginning is named.
func TestShortenedTopic(t *testing.T) {
	w := &world{now: tomorrow, rows: []*outbox.Message{row("1", outbox.Sent, 0)}, cut: map[string]bool{"orders": true}}
	if r := w.compare(t, nil); len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "topic orders no longer holds") {
		t.Errorf("notes %q", r.Notes)
	}
}

// A compacted topic drops records of its own accord: it is named, and nothing of it is set back.
func TestCompactedTopic(t *testing.T) {
	w := &world{now: tomorrow, rows: []*outbox.Message{row("1", outbox.Sent, 0)}, compact: map[string]bool{"orders": true}}
	r := w.compare(t, func(q *Request) { q.Republish = true })
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "topic orders is compacted") {
		t.Errorf("notes %q", r.Notes)
	}
	if len(r.ToRepublish) != 0 || r.Equal {
		t.Errorf("%d rows are to be published again, report %+v", len(r.ToRepublish), r)
	}
}

// All that is missing is named for a republish, not the examples alone, and nothing else; but nothing of a topic that may have held it.
func TestRowsToRepublish(t *testing.T) {
	w := &world{now: tomorrow, topics: map[string][]sink.Record{"orders": {stored("there", 0)}}}
	w.rows = append(w.rows, row("there", outbox.Sent, 0), row("pending", outbox.Pending, 0), row("failed", outbox.Failed, 0))
	for i := range 1100 {
		w.rows = append(w.rows, row(fmt.Sprint("m", i), outbox.Sent, 0))
	}
	again := func(q *Request) { q.Republish = true }
	if r := w.compare(t, nil); len(r.ToRepublish) != 0 {
		t.Errorf("%d rows are named unasked", len(r.ToRepublish))
	}
	r := w.compare(t, again)
	if len(r.ToRepublish) != 1100 || r.Equal || r.ToRepublish[0].ID != "1m0" {
		t.Errorf("%d rows are to be published again, report %+v", len(r.ToRepublish), r)
	}
	w.cut = map[string]bool{"orders": true}
	if r := w.compare(t, again); len(r.ToRepublish) != 0 || len(r.Notes) != 1 {
		t.Errorf("%d rows of a shortened topic are to be published again, notes %q", len(r.ToRepublish), r.Notes)
	}
}

// Many records without a row of the window are looked up in few questions.
func TestLookupsAreBatched(t *testing.T) {
	w := &world{now: tomorrow, rows: []*outbox.Message{row("1", outbox.Sent, 0)}, topics: map[string][]sink.Record{"orders": {stored("1", 0)}}}
	for i := range 1200 {
		w.topics["orders"] = append(w.topics["orders"], stored(fmt.Sprint("x", i), time.Minute))
	}
	r := w.compare(t, nil)
	if r.Topics[0].Extra != 1200 || len(r.Extra) != 3 || w.lookups != 3 {
		t.Errorf("%d extra, %d examples, %d questions", r.Topics[0].Extra, len(r.Extra), w.lookups)
	}
}

// A run against a model that keeps everything and goes through it again and again.
func TestAgainstTheNaiveModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{now: tomorrow, topics: map[string][]sink.Record{}}
		names := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		topic := rapid.SampledFrom([]string{"orders", "payments"})
		body := rapid.SampledFrom([]string{"x", "x", "y"})
		times := rapid.Custom(func(rt *rapid.T) time.Time {
			return noon.Add(time.Duration(rapid.IntRange(-150, 300).Draw(rt, "minute")) * time.Minute)
		})
		seen := map[message]bool{}
		for i := range rapid.IntRange(0, 12).Draw(rt, "rows") {
			m := row(names.Draw(rt, "id"), outbox.Status(rapid.IntRange(0, 4).Draw(rt, "status")), 0)
			m.Table, m.Topic = rapid.SampledFrom([]string{"shop.t", "shop.u"}).Draw(rt, "table"), topic.Draw(rt, "topic")
			m.ID, m.Body, m.CreatedAt = fmt.Sprint(i), []byte(body.Draw(rt, "body")), times.Draw(rt, "made")
			if name := (message{m.Topic, m.MessageID}); !seen[name] { // the model does not distinguish messages of one name either
				seen[name] = true
				w.rows = append(w.rows, m)
			}
		}
		for range rapid.IntRange(0, 25).Draw(rt, "records") {
			name := topic.Draw(rt, "topic")
			w.topics[name] = append(w.topics[name], sink.Record{
				MessageID: names.Draw(rt, "id"), Body: []byte(body.Draw(rt, "body")), At: times.Draw(rt, "stored"),
			})
		}
		req := Request{From: noon, To: noon.Add(time.Hour), Tables: []string{"shop.t", "shop.u"}, Margin: time.Hour, Limit: 100}
		got, err := Run(context.Background(), req, w, w)
		if err != nil {
			rt.Fatal(err)
		}
		if want := w.naive(req); want != summary(got) {
			rt.Fatalf("the model says\n%s\nthe run says\n%s", want, summary(got))
		}
	})
}

func summary(r Report) string {
	return fmt.Sprintf("missing %s | extra %s | repeated %s | different %s", named(r.Missing), named(r.Extra), named(r.Repeated), named(r.Different))
}

func named(list []Message) string {
	var all []string
	for _, m := range list {
		all = append(all, fmt.Sprintf("%s/%s", m.Topic, m.MessageID))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// naive is the same by the definitions alone.
func (w *world) naive(req Request) string {
	var r Report
	inside := window{req.From, req.To}
	topics, late := map[string]bool{}, map[string]bool{}
	copies := func(topic, id string, beyond bool) (found []sink.Record) {
		for _, one := range w.topics[topic] {
			if one.MessageID == id && !one.At.Before(req.From.Add(-req.Margin)) && (beyond || one.At.Before(req.To.Add(req.Margin))) {
				found = append(found, one)
			}
		}
		return found
	}
	for _, m := range w.rows {
		if inside.has(m.CreatedAt) {
			topics[m.Topic] = true
			late[m.Topic] = late[m.Topic] || m.Status == outbox.Sent && len(copies(m.Topic, m.MessageID, false)) == 0
		}
	}
	for _, m := range w.rows {
		if !inside.has(m.CreatedAt) {
			continue
		}
		example := Message{Topic: m.Topic, MessageID: m.MessageID}
		found := copies(m.Topic, m.MessageID, late[m.Topic])
		if len(found) == 0 && m.Status == outbox.Sent {
			r.Missing = append(r.Missing, example)
		}
		if len(found) > 1 {
			r.Repeated = append(r.Repeated, example)
		}
		if slices.ContainsFunc(found, func(one sink.Record) bool { return string(one.Body) != string(m.Body) }) {
			r.Different = append(r.Different, example)
		}
	}
	for topic := range topics {
		for _, one := range w.topics[topic] {
			has := slices.ContainsFunc(w.rows, func(m *outbox.Message) bool { return m.MessageID == one.MessageID })
			if inside.has(one.At) && !has {
				r.Extra = append(r.Extra, Message{Topic: topic, MessageID: one.MessageID})
			}
		}
	}
	return summary(r)
}

// Rows of two tables that have message id and topic in common are counted as one message of two copies.
func TestRowsThatCannotBeToldApart(t *testing.T) {
	other := row("1", outbox.Sent, 0)
	other.Table, other.Body = "shop.u", []byte("another")
	w := &world{now: tomorrow, rows: []*outbox.Message{row("1", outbox.Sent, 0), other}, topics: map[string][]sink.Record{"orders": {stored("1", 0)}}}
	both := func(q *Request) { q.Tables = []string{"shop.t", "shop.u"} }
	r := w.compare(t, both)
	missing := int64(0)
	for _, g := range r.Tables {
		missing += g.Missing
	}
	if missing != 1 || len(r.Notes) != 1 || len(r.Different) != 0 {
		t.Errorf("one copy of two: %+v", r)
	}
	w.topics["orders"] = append(w.topics["orders"], stored("1", 0))
	if r := w.compare(t, both); !r.Equal {
		t.Errorf("both copies: %+v", r)
	}
}

// The memory of a row does not depend on its body, and is what the package's comment says.
func TestMemoryOfARow(t *testing.T) {
	const rows = 300_000
	c := newComparison(window{noon, tomorrow}, 1)
	var before, after runtime.MemStats
	body := make([]byte, 10_000)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range rows {
		m := &outbox.Message{Identity: outbox.Identity{Table: "shop.t", MessageID: fmt.Sprint("message-", i)}, Topic: "orders", Body: body}
		if err := c.row(m, true, nil); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / rows
	t.Logf("%d bytes for each row", each)
	if each > 64 {
		t.Errorf("%d bytes for each row", each)
	}
	runtime.KeepAlive(c)
}
