package redelivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "shop.t"

// world is the model of a table and of the flow. A row that is set back fails again after a second, unless it is good.
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
	held    int // rows that are reserved
	retried int // that Config.Retried was told of

	sent   map[int]bool // rows that are SENT, since `since` like the others
	copies map[int]int
	done   map[int]bool // what MarkDone was told
	ledger map[outbox.Identity]table.Wait
	room   chan struct{} // Publish waits for it when it is not nil
}

// memory is what outlives a Redelivery.
type memory struct {
	table.WaitMap
	w *world
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

// Publish counts what goes out, if the count is on disk.
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
	return outbox.Identity{Table: name, ID: strconv.Itoa(n), MessageID: fmt.Sprint("m", n)}
}

func number(id outbox.Identity) int {
	n, _ := strconv.Atoi(id.ID)
	return n
}

func (w *world) Final(_ context.Context, _ string, after table.Cursor, q table.FinalQuery) (page []outbox.Candidate, next table.Cursor, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, after, w.err
	}
	from, _ := strconv.Atoi(after.ID())
	var ids []int
	for n := range w.since {
		if n > from && w.sent[n] == (q.Status == outbox.Sent) {
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
		time.AfterFunc(time.Second, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.since[n] = time.Now()
		})
	}
	return int64(len(ids)), nil
}

func (w *world) Takes() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed
}

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

func (w *world) SetBack(rows []outbox.Candidate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held -= len(rows)
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// tried is how often a row was set back.
func (w *world) tried(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tries[n])
}

func (w *world) triesOf(n int) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.tries[n])
}

func (w *world) rowsTried() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tries)
}

func (w *world) reserved() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

func (w *world) told() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.retried
}

// copied is how often each row went out.
func (w *world) copied() map[int]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.copies)
}

// records is what the state directory has.
func (w *world) records() map[outbox.Identity]table.Wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.ledger)
}

func (w *world) marked() map[int]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.done)
}

// begin runs a Redelivery inside a bubble; stop ends it, the test does at the latest.
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

// A row is tried again when it has been FAILED for as long as it is to wait, not sooner and little later, and again after each failure;
// one that was sent is not, and what is owned or of a suspended topic is left alone.
func TestFailedRowsAreTriedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 6 * time.Hour
		w := newWorld(5)
		w.since[2] = time.Now().Add(-every) // of an earlier run
		w.good[3], w.owned[4], w.topics[5] = true, true, true
		r, _ := begin(t, w, every, &memory{w: w})
		time.Sleep(25 * time.Hour)
		for n, want := range map[int]int{1: 4, 2: 5, 3: 1, 4: 0, 5: 0} {
			if got := w.tried(n); got != want {
				t.Errorf("row %d was tried %d times, want %d", n, got, want)
			}
		}
		for i, at := range w.triesOf(1) {
			if i > 0 && (at.Sub(w.triesOf(1)[i-1]) < every || at.Sub(w.triesOf(1)[i-1]) > every+10*time.Minute) {
				t.Errorf("tried after %v", at.Sub(w.triesOf(1)[i-1]))
			}
		}
		s, ok := r.State(name)
		if !ok || s.Retried != 10 || s.Error != "" || counted(r.metrics.retried.WithLabelValues(name)) != 10 || w.told() != 10 || w.reserved() != 0 {
			t.Errorf("%+v, told of %d, %d held", s, w.told(), w.reserved())
		}
	})
}

// Rows that do not say when they failed are tried again in passes; restarts do not repeat a pass, and neither do they put it off.
func TestRowsThatDoNotSayWhenTheyFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 6 * time.Hour
		w := newWorld(3)
		waits := &memory{w: w}
		w.undated = true
		for range 10 { // every 5 hours a restart
			_, stop := begin(t, w, every, waits)
			time.Sleep(5 * time.Hour)
			stop()
		}
		for n := 1; n <= 3; n++ {
			if got := w.tried(n); got != 8 { // at 6, 12, .. 48 hours
				t.Errorf("row %d was tried %d times", n, got)
			}
		}
		_, stop := begin(t, w, time.Hour, waits) // the configuration has changed
		time.Sleep(61 * time.Minute)
		stop()
		if got := w.tried(1); got != 9 {
			t.Errorf("row 1 was tried %d times", got)
		}
	})
}

// Many rows are set back slowly, and none while the broker is away.
func TestManyFailedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(10_000)
		for n := range w.since {
			w.since[n], w.good[n] = time.Now().Add(-time.Hour), true
		}
		began := time.Now()
		begin(t, w, time.Minute, &memory{w: w})
		time.Sleep(time.Minute)
		w.set(func() { w.closed = true })
		before := w.rowsTried()
		time.Sleep(time.Minute)
		if grown := w.rowsTried() - before; before < 2000 || before > 3500 || grown > 0 {
			t.Errorf("%d rows in the first minute, %d while the broker was away", before, grown)
		}
		w.set(func() { w.closed = false })
		for w.rowsTried() < 10_000 {
			time.Sleep(time.Second)
		}
		if took := time.Since(began) - time.Minute; took < 180*time.Second || took > 240*time.Second {
			t.Errorf("10,000 rows took %v", took)
		}
	})
}

// A database that does not answer is asked again, more and more slowly, and status says so.
func TestTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		w.since[1] = time.Now().Add(-time.Hour)
		w.err = errors.New("gone away")
		r, _ := begin(t, w, time.Minute, &memory{w: w})
		time.Sleep(time.Minute)
		if s, _ := r.State(name); s.Error != "gone away" || counted(r.metrics.errors) < 3 || counted(r.metrics.errors) > 6 {
			t.Errorf("%+v, %v errors", s, counted(r.metrics.errors))
		}
		w.set(func() { w.err = nil })
		time.Sleep(3 * time.Minute)
		if s, _ := r.State(name); s.Error != "" || w.tried(1) == 0 || w.reserved() != 0 {
			t.Errorf("%+v, tried %d times", s, w.tried(1))
		}
		if _, ok := r.State(fmt.Sprint(name, "2")); ok {
			t.Error("a table that is left alone has a state")
		}
	})
}
