package ack

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/store"
)

var _ Tables = (*store.Store)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world simulates everything around an Acker and records the sequence of calls. Function fields, when set, return the answers;
// they are called without the lock.
type world struct {
	onCommit func(sent []outbox.Completion) error
	onSent   func() error
	onApply  func(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error)

	mu         sync.Mutex
	calls      []string
	moved      bool   // returned by the next Checkpoint
	gtids      string // of checkpoints
	passed     []outbox.Completion
	journal    map[outbox.Identity]bool
	settled    map[outbox.Identity]int
	written    map[outbox.Identity]int
	commitTime []time.Time
	applySizes []int
	applying   map[outbox.Identity]bool
	inTable    map[string]int
	records    [][]outbox.Completion // of the commits with sent rows
	left       map[outbox.Identity]bool
	everLeft   []string
}

func newWorld() *world {
	return &world{
		journal: map[outbox.Identity]bool{}, settled: map[outbox.Identity]int{}, written: map[outbox.Identity]int{},
		applying: map[outbox.Identity]bool{}, inTable: map[string]int{}, left: map[outbox.Identity]bool{},
	}
}

func (w *world) note(format string, args ...any) {
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

func names(list []outbox.Completion) (out []string) {
	for _, s := range list {
		out = append(out, s.ID)
	}
	return out
}

func identities(list []outbox.Completion) (out []outbox.Identity) {
	for _, s := range list {
		out = append(out, s.Identity)
	}
	return out
}

func (w *world) Settled(list []outbox.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("settled %v", names(list))
	for _, s := range list {
		w.settled[s.Identity]++
		if s.Action == outbox.ActionMarkSent {
			w.moved = true
		}
	}
}

func (w *world) Written(list []outbox.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(list) > 0 {
		w.note("written %v", names(list))
	}
	for _, s := range list {
		w.written[s.Identity]++
	}
}

func (w *world) Passed() []outbox.Completion {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.passed
	w.passed = nil
	return list
}

func (w *world) Checkpoint() (outbox.Position, uint64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := w.moved
	w.moved = false
	return outbox.Position{File: "binlog.000001", Offset: uint64(len(w.settled)), GTIDs: w.gtids}, 7, moved
}

func (w *world) Commit(sent []outbox.Completion, written []outbox.Identity, at *outbox.Position, generation uint64) error {
	if w.onCommit != nil {
		if err := w.onCommit(sent); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at != nil && generation != 7 {
		w.note("broken: a checkpoint of generation %d", generation)
	}
	w.note("commit sent=%v written=%d checkpoint=%v", names(sent), len(written), at != nil)
	w.commitTime = append(w.commitTime, time.Now())
	for _, id := range written {
		delete(w.journal, id)
	}
	for _, s := range sent {
		w.journal[s.Identity] = true
	}
	if len(sent) > 0 {
		w.records = append(w.records, slices.Clone(sent))
	}
	return nil
}

func (w *world) Newest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return uint64(len(w.records))
}

func (w *world) Sent(record uint64, rows []outbox.Completion) ([]outbox.Completion, error) {
	if w.onSent != nil {
		return nil, w.onSent()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.records[record-1] {
		rows = append(rows, outbox.Completion{Identity: c.Identity, Action: c.Action, BrokerID: c.BrokerID, Since: c.Since})
	}
	return rows, nil
}

func (w *world) Leave(list []outbox.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range list {
		w.left[c.Identity] = true
		w.everLeft = append(w.everLeft, c.ID)
	}
}

func (w *world) Refused(list []outbox.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("refused %v", names(list))
}

func (w *world) Fetch(list []outbox.Completion) []outbox.Completion {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(list, func(c outbox.Completion) bool {
		was := w.left[c.Identity]
		delete(w.left, c.Identity)
		return !was
	})
}

func (w *world) Apply(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
	w.mu.Lock()
	if w.inTable[batch[0].Table]++; w.inTable[batch[0].Table] > 4 {
		w.note("broken: more than four Apply at once for %s", batch[0].Table)
	}
	for _, s := range batch {
		if w.applying[s.Identity] || s.Table != batch[0].Table {
			w.note("broken: row %s is in two batches at once or in one of another table", s.ID)
		}
		w.applying[s.Identity] = true
		if s.Action == outbox.ActionMarkSent && !w.journal[s.Identity] {
			w.note("broken: sent row %s is marked before it is journalled", s.ID)
		}
	}
	w.mu.Unlock()
	table, ids := batch[0].Table, identities(batch) // the caller owns the batch again afterwards
	var refused []outbox.WriteError
	var err error
	if w.onApply != nil {
		refused, err = w.onApply(ctx, batch)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inTable[table]--
	for _, id := range ids {
		delete(w.applying, id)
	}
	w.applySizes = append(w.applySizes, len(batch))
	w.note("apply %v %v", names(batch), err == nil)
	return refused, err
}

func (w *world) trace() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *world) journalled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.journal)
}

// bench is a running Acker in a bubble of virtual time.
type bench struct {
	*world
	*Acker
	logs *observer.ObservedLogs
	reg  *prometheus.Registry
	stop context.CancelFunc
	end  chan error
}

// start runs an Acker on w until the bubble's test stops it. Every row waits for WriteEvery.
func start(t *testing.T, w *world) *bench {
	t.Helper()
	return run(t, build(w, Config{SentWithin: 20 * time.Millisecond}))
}

func run(t *testing.T, b *bench) *bench {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	go func() { b.end <- b.Run(ctx) }()
	synctest.Wait()
	return b
}

func build(w *world, cfg Config) *bench {
	core, logs := observer.New(zap.DebugLevel)
	b := &bench{world: w, logs: logs, reg: prometheus.NewRegistry(), end: make(chan error, 1)}
	b.Acker = New(cfg, w, w, w, zap.New(core), b.reg)
	return b
}

// close stops Run and returns its error.
func (b *bench) close() error {
	b.stop()
	return <-b.end
}

func (b *bench) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func completion(table string, n int, v outbox.Action) outbox.Completion {
	id := strconv.Itoa(n)
	ident := outbox.Identity{Table: table, ID: id, MessageID: "m" + id}
	return outbox.Completion{Identity: ident, Action: v, Since: time.Now()}
}

func completions(table string, from, to int, v outbox.Action) (out []outbox.Completion) {
	for n := from; n <= to; n++ {
		out = append(out, completion(table, n, v))
	}
	return out
}
