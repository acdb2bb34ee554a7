package keyorder

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// world is a table, its log, a registry and a broker around an Order, in virtual time. Rows get growing primary keys in the order of their
// commits. The model is the field published and the check in launch: the broker gets the rows of a key in that order.
type world struct {
	t       *rapid.T
	o       *Order
	owners  *tracker.Tracker
	now     time.Time
	rows    []*modelRow
	log     []*modelRow // not offered yet
	limit   int
	late    bool // the table shows rows later than the log
	atSink  []*tracker.Entry
	retry   []*tracker.Entry                   // sent again later
	written map[*tracker.Entry]func(*modelRow) // completions that the table does not have yet
	cursor  int                                // of a reading: it continues behind the last row that it has shown; -1: none
	more    bool                               // its last page was full
	fits    bool
}

type modelRow struct {
	outbox.Candidate
	key       string
	visible   bool // other sessions see it
	offered   bool // or skipped: the log does not bring it any more
	published bool
	gone      bool // deleted by hand
	due       time.Time
}

func (r *modelRow) final() bool {
	return r.gone || r.Status == outbox.Sent || r.Status == outbox.Failed
}

type noSweeps struct{}

func (noSweeps) Trigger()                             {}
func (noSweeps) DueIn(outbox.Identity, time.Duration) {}

func newWorld(t *rapid.T) *world {
	track, err := tracker.New(outbox.MySQL, outbox.Position{File: "binlog.000001", Offset: 4}, noSweeps{}, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, owners: track, now: time.Unix(1_000_000, 0), limit: rapid.SampledFrom([]int{1, 2, 5, 1000}).Draw(t, "limit"), cursor: -1,
		written: map[*tracker.Entry]func(*modelRow){},
	}
	w.late = w.limit == 1000 && rapid.Bool().Draw(t, "late") // above the bound a row that is not visible yet is not in the order
	w.o = New(Limits{Rows: w.limit, Behind: rapid.IntRange(1, 3).Draw(t, "behind"), AllBehind: tracker.Limit{Rows: 4, Bytes: 1 << 20}}, []string{"shop.t"})
	return w
}

func (w *world) row(e *tracker.Entry) *modelRow {
	n, _ := strconv.Atoi(e.Row().ID)
	return w.rows[n-1]
}

// launch gives a row to the broker: it is the oldest of its key that is neither published nor final, and the only one at the sink.
func (w *world) launch(e *tracker.Entry) {
	r := w.row(e)
	for _, other := range w.rows {
		if other == r {
			break
		}
		if other.key == r.key && !other.published && !other.final() {
			w.t.Fatalf("row %s of key %s goes to the sink before row %s", r.ID, r.key, other.ID)
		}
	}
	for _, other := range w.atSink {
		if w.row(other).key == r.key {
			w.t.Fatalf("rows %s and %s of key %s are at the sink together", r.ID, other.Row().ID, r.key)
		}
	}
	e.Sends.Count++
	w.atSink = append(w.atSink, e)
}

// leave gives rows back that the order remembers.
func (w *world) leave(rows ...*tracker.Entry) {
	for _, e := range rows {
		if e.Message.Claim != "" {
			w.complete(e, func(r *modelRow) { r.Status = outbox.Pending })
		} else {
			w.owners.Drop(e, outbox.CauseOrder)
		}
	}
}

func (w *world) complete(e *tracker.Entry, change func(*modelRow)) {
	w.owners.Complete(e)
	w.written[e] = change
}

func (w *world) come(e *tracker.Entry) {
	switch w.o.Come(e, w.now) {
	case Send:
		w.launch(e)
	case Leave:
		w.leave(e)
	}
}

// commit appends a row to the table and to the log.
func (w *world) commit(key string) {
	id := outbox.Identity{Table: "shop.t", ID: strconv.Itoa(len(w.rows) + 1), MessageID: fmt.Sprint("m", len(w.rows)+1)}
	r := &modelRow{Candidate: outbox.Candidate{Identity: id, Topic: "orders", Key: key}, key: key, visible: !w.late}
	w.rows, w.log = append(w.rows, r), append(w.log, r)
}

// show makes the next row visible, in the order of the log.
func (w *world) show() {
	for _, r := range w.rows {
		if !r.visible {
			r.visible = true
			return
		}
	}
}

// offer takes the next row of the log: it comes, it is deferred, or a part of the log with it is skipped.
func (w *world) offer(how string) {
	if len(w.log) == 0 {
		return
	}
	r := w.log[0]
	if how == "skip" && !r.visible { // a start reads the table behind what it skips
		return
	}
	w.log, r.offered = w.log[1:], true
	switch how {
	case "defer":
		w.o.Deferred([]outbox.Deferred{{Table: "shop.t", Rows: 1}})
	case "skip":
		w.o.Unread()
	default:
		m := &outbox.Message{Identity: r.Identity, Topic: r.Topic, ShardingKey: r.key, Path: outbox.PathBinlog}
		seq := w.owners.Begin(&outbox.Txn{Messages: []*outbox.Message{m}})
		for _, e := range w.owners.Admit(seq, []*outbox.Message{m}, nil) {
			w.come(e)
		}
	}
}

// answer is a result for a row at the sink.
func (w *world) answer(n int, class string) {
	if len(w.atSink) == 0 {
		return
	}
	n %= len(w.atSink)
	e := w.atSink[n]
	w.atSink = slices.Delete(w.atSink, n, n+1)
	switch class {
	case "sent":
		next, behind := w.o.Sent(e, w.now)
		w.row(e).published = true
		w.complete(e, func(r *modelRow) { r.Status = outbox.Sent })
		w.leave(behind...)
		if next != nil {
			w.launch(next)
		}
	case "refused":
		w.leave(w.o.Unsent(e, e, "refused", w.now)...)
		due := w.now.Add(time.Minute)
		w.complete(e, func(r *modelRow) { r.Status, r.RetryCount, r.due = outbox.Pending, r.RetryCount+1, due })
	case "failed":
		w.leave(w.o.Unsent(e, e, "failed", w.now)...)
		w.complete(e, func(r *modelRow) { r.Status = outbox.Failed })
	case "probe":
		e.Sends.Probes++
		w.leave(w.o.Probe(e, w.now)...)
		w.retry = append(w.retry, e)
	default:
		w.retry = append(w.retry, e)
	}
}

// again sends a row of the retry buffer once more.
func (w *world) again() {
	if len(w.retry) == 0 {
		return
	}
	e := w.retry[0]
	w.retry = w.retry[1:]
	if w.o.Again(e) {
		w.launch(e)
		return
	}
	w.leave(w.o.Unsent(e, writer(e), "again", w.now)...)
	w.leave(e)
}

// write makes a completion visible in the table.
func (w *world) write(n int) {
	rows := slices.SortedFunc(maps.Keys(w.written), func(a, b *tracker.Entry) int { return compareKeys(a.Row().ID, b.Row().ID) })
	if len(rows) == 0 {
		return
	}
	e := rows[n%len(rows)]
	if r := w.row(e); !r.gone && r.visible {
		w.written[e](r)
	} else if !r.gone {
		return // the completion waits until the row can be written
	}
	delete(w.written, e)
	list := []outbox.Completion{{Identity: e.Row(), Entry: e, Action: outbox.ActionMarkSent}}
	w.owners.Settled(list)
	w.owners.Written(list)
}

// sees returns what a query shows of a row.
func (w *world) sees(r *modelRow) outbox.Candidate {
	c := r.Candidate
	if c.Waiting = r.due.After(w.now); c.Waiting {
		c.DueInMilli = r.due.Sub(w.now).Milliseconds()
	}
	return c
}

// sweep reserves rows that are due, claims and publishes those that may go; take picks some of them.
func (w *world) sweep(take func() bool) {
	var found []outbox.Candidate
	for _, r := range w.rows {
		if c := w.sees(r); r.visible && r.offered && !r.final() && !c.Waiting && take() {
			found = append(found, c)
		}
	}
	free, waiting := w.o.Reserved(w.owners.Reserve(w.o.WithoutUnread(found)), outbox.Position{File: "binlog.000001", Offset: 4}, w.now)
	w.owners.Release(waiting)
	for _, c := range free {
		r := w.row(tracker.Of(c.Entry))
		r.Status = outbox.Sending
		m := &outbox.Message{Identity: c.Identity, Topic: c.Topic, ShardingKey: r.key, Path: outbox.PathSweep, Claim: "ours", Entry: c.Entry}
		if e, ok := w.owners.ReadBack(m); ok {
			w.come(e)
		}
	}
}

func (w *world) look() {
	ids := w.o.ToLook(w.now, w.owners, func(string, string) bool { return false })
	var found []outbox.Candidate
	for _, id := range ids {
		n, _ := strconv.Atoi(id.ID)
		if r := w.rows[n-1]; r.visible && !r.gone {
			found = append(found, w.sees(r))
		}
	}
	w.o.Looked(ids, found, w.now)
}

// read does one step of a reading: it begins, reads a page of three rows, or ends.
func (w *world) read() {
	switch {
	case w.cursor < 0:
		if w.o.Reading("shop.t").Due(w.now) {
			w.begin()
		}
	case w.more && w.fits:
		var page []outbox.Candidate
		for at := w.cursor; at < len(w.rows) && len(page) < 3; at++ {
			if r := w.rows[at]; r.visible && !r.final() {
				page = append(page, w.sees(r))
				w.cursor = at + 1
			}
		}
		w.more = len(page) == 3
		w.fits = w.o.Reading("shop.t").Page(page, w.owners, w.now)
	default:
		if done, _ := w.o.Reading("shop.t").End(w.fits, time.Millisecond, w.now); done {
			w.cursor = -1
		} else {
			w.begin()
		}
	}
}

func (w *world) begin() {
	w.o.Reading("shop.t").Begin(w.owners, w.now)
	w.cursor, w.more, w.fits = 0, true, true
}

// remove deletes a row by hand that no entry owns.
func (w *world) remove(n int) {
	if len(w.rows) == 0 {
		return
	}
	if r := w.rows[n%len(w.rows)]; r.visible && r.offered && !w.owners.Owns(r.Identity) && !r.published {
		r.gone = true
	}
}

// check holds what is true at any time.
func (w *world) check() {
	queued := 0
	for _, s := range w.o.memory.keys {
		if !slices.IsSortedFunc(s.left, func(a, b *leftRow) int { return compareKeys(a.id.ID, b.id.ID) }) {
			w.t.Fatalf("the rows left of key %s are not in order", s.Key.Key)
		}
		if s.first == nil && len(s.left) == 0 {
			w.t.Fatalf("key %s has a state without rows", s.Key.Key)
		}
		queued += s.behind
	}
	if b := w.o.Behind(); b.Rows != queued {
		w.t.Fatalf("%d rows are counted behind others, %d are", b.Rows, queued)
	}
	// Rows that come before remembered ones are remembered in any case until the next reading: of this small world, some.
	if keys, rows := w.o.Waiting(); rows > w.limit+w.owners.Owned()+len(w.o.memory.keys)+20 || keys > rows {
		w.t.Fatalf("%d keys wait, %d rows are remembered, the limit is %d, %d are owned", keys, rows, w.limit, w.owners.Owned())
	}
}

// finish lets everything succeed and wants each row to be final.
func (w *world) finish() {
	for range 400 {
		for range len(w.rows) {
			w.show()
			w.offer("come")
		}
		for len(w.atSink)+len(w.retry)+len(w.written) > 0 {
			w.again()
			w.answer(0, "sent")
			w.write(0)
		}
		for range len(w.rows)/3 + 3 {
			w.read()
		}
		w.look()
		w.sweep(func() bool { return true })
		w.now = w.now.Add(5 * time.Second)
		w.check()
	}
	for _, r := range w.rows {
		if !r.final() {
			w.t.Fatalf("row %s of key %s is not final: %+v", r.ID, r.key, w.o.memory.rows[r.Identity])
		}
	}
	for range len(w.rows) + 3 { // readings that are asked for end
		w.read()
	}
	w.look()
	if keys, rows := w.o.Waiting(); keys+rows+len(w.o.memory.keys) > 0 {
		w.t.Fatalf("at the end %d keys wait for %d rows, %d have a state", keys, rows, len(w.o.memory.keys))
	}
}
