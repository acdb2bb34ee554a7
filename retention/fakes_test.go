package retention

import (
	"cmp"
	"context"
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
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "shop.t_local_message"

// row of the model table.
type row struct {
	status outbox.Status
	since  time.Time // when it got its status
	locked bool
	bad    bool // the server refuses to remove it
}

// rows is the model of a database with one table, in the time of the test. mu protects it.
type rows struct {
	mu    sync.Mutex
	table map[int]*row
	moved map[string][]int // by suffix
	page  int              // rows of a page

	midnight time.Time // of the database
	history  []int64   // answers, the last one repeated; empty: it cannot be read
	err      error     // of every query
	batches  []int     // sizes
	took     time.Duration
	looks    int // reads of the history list
}

func newRows(n int, status outbox.Status, age time.Duration) *rows {
	r := &rows{table: map[int]*row{}, moved: map[string][]int{}, page: 100, midnight: time.Now(), history: []int64{10}, took: 10 * time.Millisecond}
	for i := range n {
		r.table[i+1] = &row{status: status, since: time.Now().Add(-age)}
	}
	return r
}

func (r *rows) leaves(x *row, e table.Expiry) bool {
	return x.status == e.Status && time.Since(x.since) >= e.Age
}

func (r *rows) Expired(_ context.Context, _, after string, of []table.Expiry) (table.ExpiredPage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	page := table.ExpiredPage{IDs: make([][]string, len(of)), Next: after}
	if r.err != nil {
		return page, r.err
	}
	from, _ := strconv.Atoi(cmp.Or(after, "0"))
	var keys []int
	for id := range r.table {
		if id > from {
			keys = append(keys, id)
		}
	}
	slices.Sort(keys)
	keys = keys[:min(len(keys), r.page)]
	for _, id := range keys {
		for i, e := range of {
			if r.leaves(r.table[id], e) {
				page.IDs[i] = append(page.IDs[i], strconv.Itoa(id))
			}
		}
		page.Next = strconv.Itoa(id)
	}
	page.Looked, page.Done = len(keys), len(keys) < r.page
	return page, nil
}

func (r *rows) Expire(_ context.Context, _ string, e table.Expiry, ids []string) (left table.Left, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return left, r.err
	}
	took := r.took
	r.mu.Unlock()
	time.Sleep(took)
	r.mu.Lock()
	r.batches = append(r.batches, len(ids))
	for _, text := range ids {
		id, _ := strconv.Atoi(text)
		x := r.table[id]
		switch {
		case x == nil || x.locked || !r.leaves(x, e):
			left.Skipped++
		case x.bad:
			left.Refused, left.ID, left.Reason = left.Refused+1, text, "a trigger says no"
		default:
			delete(r.table, id)
			r.moved[e.Into] = append(r.moved[e.Into], id)
			left.Rows++
		}
	}
	return left, nil
}

func (r *rows) TimeOfDay(context.Context, string) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.midnight) % day, r.err
}

func (r *rows) History(context.Context) (int64, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	if len(r.history) == 0 {
		return 0, false, r.err
	}
	length := r.history[0]
	if len(r.history) > 1 {
		r.history = r.history[1:]
	}
	return length, true, r.err
}

// get reads the model.
func get[T any](r *rows, read func() T) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return read()
}

// len returns the number of rows in the table.
func (r *rows) len() int { return get(r, func() int { return len(r.table) }) }

// asked returns how often the history list was read.
func (r *rows) asked() int { return get(r, func() int { return r.looks }) }

// to returns the rows that have moved to a table, in order.
func (r *rows) to(suffix string) []int {
	return get(r, func() []int { return slices.Clone(r.moved[suffix]) })
}

// set changes the model.
func (r *rows) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// begin runs a Retention inside a bubble until the test ends.
func begin(t *testing.T, cfg Config, r Rows) (*Retention, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	cfg.Tables = []string{name}
	x := New(cfg, r, zap.New(core), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return x, logs
}

func (x *Retention) counted(action string) float64 {
	return value(x.metrics.rows(name, action))
}

// value returns the value of a counter or a gauge.
func value(m prometheus.Metric) float64 {
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		panic(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}

// wait lets time pass until every goroutine waits again.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// of lists what leaves the table.
func of(list ...table.Expiry) map[string][]table.Expiry { return map[string][]table.Expiry{name: list} }

var (
	week    = table.Expiry{Status: outbox.Sent, Age: 7 * day}
	archive = table.Expiry{Status: outbox.Sent, Age: 7 * day, Into: table.ArchiveSuffix}
	failed  = table.Expiry{Status: outbox.Failed, Age: 30 * day, Into: table.FailedSuffix}
)
