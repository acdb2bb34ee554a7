package redelivery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Rows from firstOfLater on are of the table that is processed last.
const (
	name, later  = "shop.t", "shop.u"
	firstOfLater = 1_000_000
)

// world is the model of a table and of the flow. A row that is reset fails again after a second, unless it is good.
type world struct {
	mu      sync.Mutex
	since   map[int]time.Time // FAILED rows, and when they failed
	undated bool
	tries   map[int][]time.Time
	good    map[int]bool
	owned   map[int]bool
	topics  map[int]bool // of a suspended topic
	closed  bool         // the broker is away
	err     error
	slow    time.Duration // until Final returns what it has read
	held    int           // rows that are reserved
	retried int           // reported to Config.Retried

	sent   map[int]bool // rows that are SENT, since `since` like the others
	copies map[int]int
	done   map[int]bool // passed to MarkDone
	ledger map[outbox.Identity]table.Wait
	room   chan struct{} // if not nil, Publish waits for it
}

// memory survives a Redelivery.
type memory struct {
	table.WaitMap
	w *world

	full  error // why nothing can be stored
	asked int
}

// Keep panics when it is called without a pause.
func (m *memory) Keep(put []table.Waiting, drop []outbox.Identity) error {
	m.w.mu.Lock()
	full := m.full
	if m.asked++; full != nil && m.asked > 1000 {
		panic("called without a pause")
	}
	m.w.mu.Unlock()
	if full != nil {
		return full
	}
	return m.WaitMap.Keep(put, drop)
}

func (m *memory) Redeliveries() (all []table.Waiting, err error) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	for id, w := range m.w.ledger {
		all = append(all, table.Waiting{Identity: id, Wait: w})
	}
	return all, nil
}

func (m *memory) KeepRedeliveries(put []table.Waiting, drop []outbox.Identity) error {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	for _, w := range put {
		m.w.ledger[w.Identity] = w.Wait
	}
	for _, id := range drop {
		delete(m.w.ledger, id)
	}
	return nil
}

// Pieces has two rows in each.
func (w *world) Pieces(_ context.Context, ids []outbox.Identity) ([][]outbox.Identity, error) {
	return slices.Collect(slices.Chunk(ids, 2)), nil
}

func (w *world) ReadSent(_ context.Context, ids []outbox.Identity) (out []*outbox.Message, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if w.sent[number(id)] {
			out = append(out, &outbox.Message{Identity: id, Path: outbox.PathRedelivery})
		}
	}
	return out, w.err
}

func (w *world) MarkDone(_ context.Context, ids []outbox.Identity) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		w.done[number(id)] = true
		delete(w.sent, number(id))
		delete(w.since, number(id))
	}
	return int64(len(ids)), w.err
}

// Publish counts what is sent, if the count is on disk.
func (w *world) Publish(ctx context.Context, rows []*outbox.Message, _ []outbox.Completion) (int, error) {
	if w.room != nil {
		select {
		case <-w.room:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range rows {
		n := number(m.Identity)
		if w.copies[n]++; w.ledger[m.Identity].Attempts < w.copies[n] {
			panic("sent before it was counted")
		}
	}
	w.held -= len(rows)
	return len(rows), nil
}

func newWorld(rows int) *world {
	w := &world{
		since: map[int]time.Time{}, tries: map[int][]time.Time{}, good: map[int]bool{}, owned: map[int]bool{}, topics: map[int]bool{},
		sent: map[int]bool{}, copies: map[int]int{}, done: map[int]bool{}, ledger: map[outbox.Identity]table.Wait{},
	}
	for n := range rows {
		w.since[n+1] = time.Now()
	}
	return w
}

func identity(n int) outbox.Identity {
	return outbox.Identity{Table: tableOf(n), ID: strconv.Itoa(n), MessageID: fmt.Sprint("m", n)}
}

func tableOf(n int) string {
	if n >= firstOfLater {
		return later
	}
	return name
}

func number(id outbox.Identity) int {
	n, _ := strconv.Atoi(id.ID)
	return n
}

func (w *world) Final(_ context.Context, of string, after table.Cursor, q table.FinalQuery) (page []outbox.Candidate, next table.Cursor, err error) {
	w.mu.Lock()
	defer func() {
		wait := w.slow
		w.mu.Unlock()
		time.Sleep(wait)
	}()
	if w.err != nil {
		return nil, after, w.err
	}
	from, _ := strconv.Atoi(after.ID())
	var ids []int
	for n := range w.since {
		if tableOf(n) == of && n > from && w.sent[n] == (q.Status == outbox.Sent) {
			ids = append(ids, n)
		}
	}
	slices.Sort(ids)
	ids = ids[:min(len(ids), q.Limit)]
	next = table.CursorBehind("", true)
	if len(ids) == q.Limit {
		next = table.CursorBehind(strconv.Itoa(ids[len(ids)-1]), false)
	}
	for _, n := range ids {
		if w.undated || time.Since(w.since[n]) >= q.Age {
			page = append(page, outbox.Candidate{Identity: identity(n), Status: q.Status})
		}
	}
	return page, next, nil
}

func (w *world) DatesFailures(string) bool { return !w.undated }

func (w *world) RetryFailed(_ context.Context, ids []outbox.Identity) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	for _, id := range ids {
		n := number(id)
		w.tries[n] = append(w.tries[n], time.Now())
		delete(w.since, n)
		if w.good[n] {
			continue
		}
		time.AfterFunc(time.Second, func() { w.set(func() { w.since[n] = time.Now() }) })
	}
	return int64(len(ids)), nil
}

func (w *world) Takes() bool { return get(w, func() bool { return !w.closed }) }

func (w *world) Reserve(rows []outbox.Candidate) (free, suspended []outbox.Candidate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range rows {
		switch {
		case w.topics[number(c.Identity)]:
			suspended = append(suspended, c)
		case !w.owned[number(c.Identity)]:
			free = append(free, c)
		}
	}
	w.held += len(free)
	return free, suspended
}

func (w *world) Release(rows []outbox.Candidate) { w.SetBack(rows) }

func (w *world) SetBack(rows []outbox.Candidate) { w.set(func() { w.held -= len(rows) }) }

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// get reads the model.
func get[T any](w *world, read func() T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return read()
}

// tried returns how often a row was reset, and triesOf when.
func (w *world) tried(n int) int { return len(w.triesOf(n)) }

func (w *world) triesOf(n int) []time.Time {
	return get(w, func() []time.Time { return slices.Clone(w.tries[n]) })
}

func (w *world) rowsTried() int { return get(w, func() int { return len(w.tries) }) }

func (w *world) reported() int { return get(w, func() int { return w.retried }) }

func (w *world) reserved() int { return get(w, func() int { return w.held }) }

// copied returns how often each row was sent.
func (w *world) copied() map[int]int {
	return get(w, func() map[int]int { return maps.Clone(w.copies) })
}

// records returns the content of the state directory.
func (w *world) records() map[outbox.Identity]table.Wait {
	return get(w, func() map[outbox.Identity]table.Wait { return maps.Clone(w.ledger) })
}

func (w *world) marked() map[int]bool {
	return get(w, func() map[int]bool { return maps.Clone(w.done) })
}

// begin runs a Redelivery inside a bubble; stop or the end of the test stops it.
func begin(t *testing.T, w *world, every time.Duration, waits Memory) (r *Redelivery, stop func()) {
	t.Helper()
	return run(t, w, Config{Failed: map[string]time.Duration{name: every}, Retried: func(ids []outbox.Identity) { w.set(func() { w.retried += len(ids) }) }}, waits)
}

func run(t *testing.T, w *world, cfg Config, waits Memory) (r *Redelivery, stop func()) {
	t.Helper()
	r = New(cfg, w, w, waits, zap.NewNop(), prometheus.NewRegistry())
	return r, start(t, r)
}

func start(t *testing.T, r *Redelivery) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	return stop
}

func counted(c prometheus.Metric) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// Return is not used: rows that go out again have no claim.
func (w *world) Return([]outbox.Candidate, string) { panic("a claim is released that was not made") }
