package fallback

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

var _ Rows = (*store.Store)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shop = "shop.t_local_message"

// second is another table that may have rows.
const second = "shop.second"

// idle begins the names of tables without rows.
const idle = "shop.idle"

// locked begins the names of tables that cannot be listed, like world.gone.
const locked = "shop.locked"

// early is how long before its time a row may be claimed.
const early = 50 * time.Millisecond

// row is a row of the model table. The bubble's clock is the database's.
type row struct {
	id      int
	table   string // "" for shop
	status  outbox.Status
	created time.Time
	due     time.Time
	topic   string
	retries int
	token   string
	claimed time.Time
}

func (r *row) identity() outbox.Identity {
	id := strconv.Itoa(r.id)
	return outbox.Identity{Table: cmp.Or(r.table, shop), ID: id, MessageID: "m" + id}
}

// world is a table, its log and the pipeline. Function fields, when set, are called without the lock.
type world struct {
	onDue     func() error
	onClaim   func() error
	onRead    func() error
	onEnd     func() error
	onPublish func(id int) // called with the lock
	onLook    func() error
	onStates  func() error
	gone      string         // a table that cannot be listed
	refusal   time.Duration  // how long it takes to say so
	refused   int            // how often it did
	returned  []int          // rows whose claims a stop has released
	stale     func(*row) row // the state that a lagging replica returns

	mu        sync.Mutex
	rows      map[int]*row
	tokens    int
	queries   []table.DueQuery
	pages     int
	looks     int
	passes    int // of timers
	asked     int // rows in them
	ends      int
	end       uint64 // of the log, as an offset
	offered   uint64
	changed   chan struct{}
	open      bool // the breaker
	suspended map[string]bool
	owned     map[outbox.Identity]bool
	calls     []string
	published []int
	late      []time.Duration // of the rows that timers published
	window    uint64
	// generation of the position
	generation uint64
	piece      int            // rows that are read back together; 0: all
	sweeps     []outbox.Sweep // complete ones
}

func newWorld(rows ...*row) *world {
	w := &world{
		rows: map[int]*row{}, suspended: map[string]bool{}, owned: map[outbox.Identity]bool{}, changed: make(chan struct{}),
		end: 1000, offered: 1000,
	}
	w.insert(rows...)
	return w
}

// insert makes rows visible.
func (w *world) insert(rows ...*row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range rows {
		if r.created.IsZero() {
			r.created = time.Now()
		}
		w.rows[r.id] = r
	}
}

func old(id int) *row { return &row{id: id, created: time.Now().Add(-time.Hour), topic: "orders"} }

// alter changes the world and wakes waiters for the flow.
func (w *world) alter(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// look reads, or sets, one field of the world.
func look[T any](w *world, field *T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *field
}

func set[T any](w *world, field *T, value T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*field = value
}

func position(offset uint64) outbox.Position {
	return outbox.Position{File: "binlog.000001", Offset: offset}
}

func (w *world) End(context.Context) (outbox.Position, error) {
	if err := w.call(&w.onEnd); err != nil {
		return outbox.Position{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends++
	w.calls = append(w.calls, "end")
	return position(w.end), nil
}

// call runs a hook, which may use the world.
func (w *world) call(hook *func() error) error {
	w.mu.Lock()
	f := *hook
	w.mu.Unlock()
	if f == nil {
		return nil
	}
	return f()
}

func (w *world) shows(r *row, q table.DueQuery) bool {
	now := time.Now()
	switch r.status {
	case outbox.Pending:
		if r.due.IsZero() {
			return now.Sub(r.created) >= q.Threshold
		}
		return r.due.Sub(now) <= q.Horizon
	case outbox.Sending:
		return r.token == "" || now.Sub(r.claimed) >= q.ExpiredClaims
	}
	return false
}

func (w *world) Due(_ context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	if strings.HasPrefix(name, idle) {
		return nil, table.CursorBehind("", true), nil
	}
	if name != shop && name != second || name == look(w, &w.gone) { // also those that are locked
		time.Sleep(w.refusal)
		w.alter(func() { w.refused++ })
		return nil, after, errors.New("no such table")
	}
	w.mu.Lock()
	w.queries = append(w.queries, q)
	w.pages++
	w.calls = append(w.calls, "due")
	last, _ := strconv.Atoi(after.ID())
	var page []outbox.Candidate
	for _, r := range slices.SortedFunc(maps.Values(w.rows), func(a, b *row) int { return cmp.Compare(a.id, b.id) }) {
		seen := *r
		if w.stale != nil {
			seen = w.stale(r)
		}
		if cmp.Or(r.table, shop) != name || r.id <= last || !w.shows(&seen, q) || len(page) == q.Limit {
			continue
		}
		page = append(page, seen.candidate())
	}
	w.mu.Unlock()
	if err := w.call(&w.onDue); err != nil {
		return nil, after, err
	}
	if len(page) < q.Limit {
		return page, table.CursorBehind("", true), nil
	}
	return page, table.CursorBehind(page[len(page)-1].ID, false), nil
}

func (r *row) candidate() outbox.Candidate {
	left := time.Until(r.due)
	return outbox.Candidate{
		Identity: r.identity(), Status: r.status, RetryCount: r.retries, Topic: r.topic, ClaimToken: r.token,
		Waiting: r.status == outbox.Pending && !r.due.IsZero() && left > 0, DueInMilli: int64((left + time.Millisecond - 1) / time.Millisecond),
	}
}

func (w *world) Claim(ctx context.Context, rows []outbox.Candidate) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	w.mu.Lock()
	w.calls = append(w.calls, "claim")
	w.tokens++
	token := "token" + strconv.Itoa(w.tokens)
	for _, c := range rows {
		id, _ := strconv.Atoi(c.ID)
		r := w.rows[id]
		if r != nil && r.status == c.Status && r.token == c.ClaimToken && r.status <= outbox.Sending && time.Until(r.due) <= early {
			r.status, r.token, r.claimed = outbox.Sending, token, time.Now()
		}
	}
	w.mu.Unlock()
	return token, w.call(&w.onClaim)
}

// Pieces puts w.piece rows in each, or all in one.
func (w *world) Pieces(_ context.Context, ids []outbox.Identity) ([][]outbox.Identity, error) {
	return slices.Collect(slices.Chunk(ids, cmp.Or(look(w, &w.piece), max(1, len(ids))))), nil
}

func (w *world) ReadBack(ctx context.Context, token string, ids []outbox.Identity) (out []*outbox.Message, rejected []outbox.Completion, _ error) {
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err := w.call(&w.onRead); err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		n, _ := strconv.Atoi(id.ID)
		r := w.rows[n]
		switch {
		case r == nil || r.token != token:
		case r.topic == "none": // cannot become a message
			rejected = append(rejected, outbox.Completion{Identity: r.identity(), Action: outbox.ActionFail})
		default:
			out = append(out, &outbox.Message{Identity: r.identity(), Topic: r.topic, Path: outbox.PathSweep, Claim: token, DueAt: r.due})
		}
	}
	return out, rejected, nil
}

func (w *world) Generation() uint64 { return look(w, &w.generation) }

// AwaitLog is the rule in short: it does not wait for a reader that is not at the end and makes no progress for patience.
func (w *world) AwaitLog(ctx context.Context, end outbox.LogEnd, patience time.Duration) error {
	for since, last := time.Now(), uint64(0); ; {
		w.mu.Lock()
		changed, offered := w.changed, w.offered
		if offered > last {
			since, last = time.Now(), offered
		}
		left := patience - time.Since(since)
		switch {
		case w.open:
			w.mu.Unlock()
			return outbox.ErrBrokerAway
		case end.Generation != w.generation:
			w.mu.Unlock()
			return outbox.ErrMoved
		case offered >= end.Offset || w.window >= end.Offset: // waited for once
			w.mu.Unlock()
			return nil
		case left <= 0:
			w.window = end.Offset
			w.calls = append(w.calls, "window")
			w.mu.Unlock()
			return nil
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-time.After(left):
		}
	}
}

func (w *world) Shown(end outbox.LogEnd) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open {
		return false, outbox.ErrBrokerAway
	}
	if end.Generation != w.generation && !end.IsZero() {
		return false, outbox.ErrMoved
	}
	return w.offered >= end.Offset || w.window >= end.Offset, nil
}

// handle is the entry of a reserved row.
type handle struct{ id outbox.Identity }

func (h handle) Row() outbox.Identity { return h.id }

func (w *world) Reserve(rows []outbox.Candidate) (free, suspended []outbox.Candidate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "reserve")
	for _, c := range rows {
		switch {
		case w.suspended[c.Topic]:
			suspended = append(suspended, c)
		case !w.owned[c.Identity]:
			w.owned[c.Identity] = true
			c.Entry = handle{c.Identity}
			free = append(free, c)
		}
	}
	return free, suspended
}

func (w *world) Release(rows []outbox.Candidate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range rows {
		delete(w.owned, c.Entry.Row())
	}
}

// Publish also acts as sink and ack: the row is SENT and released.
func (w *world) Publish(ctx context.Context, rows []*outbox.Message, rejected []outbox.Completion) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "publish")
	for _, m := range rows {
		id, _ := strconv.Atoi(m.ID)
		if !w.owned[m.Identity] || m.Entry != (handle{m.Identity}) || w.rows[id].token != m.Claim {
			return 0, errors.New("published without reservation or claim")
		}
		w.published = append(w.published, id)
		if r := w.rows[id]; !r.due.IsZero() && m.Path == outbox.PathTimer {
			w.late = append(w.late, time.Since(r.due))
		}
		if w.onPublish != nil {
			w.onPublish(id)
			continue
		}
		w.rows[id].status = outbox.Sent
		delete(w.owned, m.Identity)
	}
	for _, c := range rejected {
		if c.Entry != (handle{c.Identity}) {
			return 0, errors.New("rejected without reservation")
		}
		w.rows[atoi(c.ID)].status = outbox.Failed
		delete(w.owned, c.Identity)
	}
	return len(rows), nil
}

func (w *world) Swept(s outbox.Sweep) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweeps = append(w.sweeps, s)
}

// got returns the published rows, in order.
func (w *world) got() []int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.published)
}
