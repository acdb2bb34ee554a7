package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// fakeSink answers each message by a function, on a goroutine of its own, in order; a nil function leaves them unanswered.
type fakeSink struct {
	mu      sync.Mutex
	answer  func(*outbox.Message) outbox.Outcome
	sent    []string // ids in the order of their sends
	hands   map[string]*outbox.Message
	done    func([]sink.Result)
	down    bool // Probe fails
	fenced  bool // Probe fails because the lease is not held
	missing map[string]bool
}

func (f *fakeSink) Send(batch []*outbox.Message, done func([]sink.Result)) {
	f.mu.Lock()
	f.done = done
	var results []sink.Result
	for _, m := range batch {
		f.sent = append(f.sent, m.ID)
		f.hands[m.ID] = m
		if f.answer != nil {
			results = append(results, sink.Result{Message: m, Outcome: f.answer(m)})
		}
	}
	f.mu.Unlock()
	if len(results) > 0 {
		go done(results)
	}
}

func (f *fakeSink) Probe(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.fenced:
		return sink.ErrMayNot
	case f.down:
		return errors.New("connection refused")
	}
	return nil
}

func (f *fakeSink) Topics(_ context.Context, topics []string) (map[string]error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	faults := map[string]error{}
	for _, t := range topics {
		if f.missing[t] {
			faults[t] = errors.New("unknown topic")
		}
	}
	return faults, nil
}

func (f *fakeSink) Close(context.Context) error { return nil }

func (f *fakeSink) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeSink) ids() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.sent...)
}

// fakeAcks remembers the completions.
type fakeAcks struct {
	mu   sync.Mutex
	list []outbox.Completion
}

func (f *fakeAcks) Add(list []outbox.Completion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, list...)
}

func (f *fakeAcks) completions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, s := range f.list {
		out = append(out, s.ID+" "+s.Action.String())
	}
	return out
}

func (f *fakeAcks) take() []outbox.Completion {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.list
	f.list = nil
	return list
}

type fakeTable map[string]outbox.Candidate // by id

func (f fakeTable) States(_ context.Context, ids []outbox.Identity) ([]outbox.Candidate, error) {
	var out []outbox.Candidate
	for _, id := range ids {
		if c, ok := f[id.ID]; ok {
			c.Identity = id
			out = append(out, c)
		}
	}
	return out, nil
}

func (f fakeTable) Untouched(_ context.Context, ids []outbox.Identity) (bool, error) {
	for _, id := range ids {
		if c, ok := f[id.ID]; !ok || c.Status != outbox.Pending || c.Waiting || c.RetryCount > 0 {
			return false, nil
		}
	}
	return true, nil
}

// Due shows all rows that are not final, in one page.
func (f fakeTable) Due(_ context.Context, _ string, _ table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	var out []outbox.Candidate
	for _, c := range f {
		if c.Status <= outbox.Sending && time.Duration(c.DueInMilli)*time.Millisecond <= q.Horizon {
			out = append(out, c)
		}
	}
	return out, table.CursorBehind("", true), nil
}

// bench is a pipeline with fakes around it, running in a bubble of virtual time.
type bench struct {
	*Pipeline
	t     *testing.T
	ctx   context.Context
	sink  *fakeSink
	acks  *fakeAcks
	table fakeTable
	logs  *observer.ObservedLogs
	reg   *prometheus.Registry
	next  uint64

	mu       sync.Mutex
	triggers int
	asked    []time.Duration // of DueIn

	lists, wholes int // look-ups row by row, and of rows as a whole
}

// countedTable counts what the pipeline asks.
type countedTable struct {
	fakeTable
	b *bench
}

func (c countedTable) States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.lists++
	return c.fakeTable.States(ctx, ids)
}

func (c countedTable) Untouched(ctx context.Context, ids []outbox.Identity) (bool, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.wholes++
	return c.fakeTable.Untouched(ctx, ids)
}

func (c countedTable) Due(ctx context.Context, name string, from table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return c.fakeTable.Due(ctx, name, from, q)
}

// change changes the table while the pipeline may read it.
func (b *bench) change(f func(rows fakeTable)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b.table)
}

// lookUps returns how often the table was asked row by row and for rows as a whole since the last call.
func (b *bench) lookUps() (lists, wholes int) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	lists, wholes, b.lists, b.wholes = b.lists, b.wholes, 0, 0
	return lists, wholes
}

// Trigger implements tracker.Sweeps.
func (b *bench) Trigger() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.triggers++
}

// DueIn implements tracker.Sweeps.
func (b *bench) DueIn(_ outbox.Identity, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, d)
}

// triggered returns how many triggers there were since the last call.
func (b *bench) triggered() int {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.triggers
	b.triggers = 0
	return n
}

// reserve reserves the rows of messages for the sweep, and returns their candidates.
func (b *bench) reserve(rows ...*outbox.Message) []outbox.Candidate {
	var list []outbox.Candidate
	for _, m := range rows {
		list = append(list, outbox.Candidate{Identity: m.Identity, Topic: m.Topic})
	}
	free, _ := b.Reserve(list)
	return free
}

// publish does what a sweep does with rows that have no owner.
func (b *bench) publish(ctx context.Context, rows ...*outbox.Message) error {
	for i, c := range b.reserve(rows...) {
		rows[i].Entry = c.Entry
	}
	_, err := b.Publish(ctx, rows, nil)
	return err
}

// answer is the sink's late answer for rows that were sent before.
func (b *bench) answer(o outbox.Outcome, rows ...*outbox.Message) {
	var out []sink.Result
	b.sink.set(func() {
		for _, m := range rows {
			out = append(out, sink.Result{Message: b.sink.hands[m.ID], Outcome: o})
		}
	})
	b.sink.done(out)
}

// suspended reports whether the sweep must skip a topic.
func (b *bench) suspended(topic string) bool {
	_, left := b.dispatch.Reserve([]outbox.Candidate{{Topic: topic}})
	return len(left) > 0
}

// run gives f a running pipeline in a bubble and ends it afterwards.
func run(t *testing.T, cfg Config, f func(*bench)) { runTable(t, cfg, fakeTable{}, f) }

// runTable is run with rows in the table.
func runTable(t *testing.T, cfg Config, rows fakeTable, f func(*bench)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{t: t, ctx: ctx, acks: &fakeAcks{}, table: rows}
		b.sink = &fakeSink{answer: func(*outbox.Message) outbox.Outcome { return outbox.Outcome{} }, missing: map[string]bool{}, hands: map[string]*outbox.Message{}}
		core, logs := observer.New(zap.InfoLevel)
		b.logs, b.reg = logs, prometheus.NewRegistry()
		tr, err := tracker.New(outbox.MySQL, outbox.Position{File: "binlog.000001", Offset: 4}, b, zap.New(core), b.reg)
		if err != nil {
			t.Fatal(err)
		}
		p := New(cfg, tr, b, b.sink, b.acks, countedTable{b.table, b}, zap.New(core), b.reg)
		b.Pipeline = p
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		f(b)
		cancel()
		<-done
	})
}

func row(id int, change ...func(*outbox.Message)) *outbox.Message {
	m := &outbox.Message{
		Identity: outbox.Identity{Table: "shop.t", ID: fmt.Sprint(id), MessageID: fmt.Sprint("m", id)},
		Topic:    "orders", Partition: outbox.NoPartition, MaxRetry: -1, Body: []byte("x"),
	}
	for _, c := range change {
		c(m)
	}
	return m
}

// txn makes the next transaction of the log.
func (b *bench) txn(rows ...*outbox.Message) *outbox.Txn {
	b.next++
	return &outbox.Txn{End: end(b.next), GTID: outbox.GTID{Source: uuid, Seq: b.next}, Messages: rows}
}

func (b *bench) offer(rows ...*outbox.Message) {
	b.t.Helper()
	if err := b.Offer(b.ctx, b.txn(rows...)); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

func (b *bench) wantCompletions(want ...string) {
	b.t.Helper()
	synctest.Wait()
	if got := b.acks.completions(); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Fatalf("completions %v, want %v", got, want)
	}
}

func (b *bench) wantSent(want ...string) {
	b.t.Helper()
	synctest.Wait()
	if got := b.sink.ids(); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Fatalf("sent %v, want %v", got, want)
	}
}

const uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

// end is where the n-th transaction of the log ends.
func end(n uint64) outbox.Position { return outbox.Position{File: "binlog.000001", Offset: 100 * n} }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
