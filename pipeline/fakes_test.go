package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// fakeSink answers each message by a function, on a goroutine of its own, in order; a nil function leaves them unanswered.
type fakeSink struct {
	mu      sync.Mutex
	answer  func(*outbox.Message) outbox.Outcome
	sent    []string // ids in the order of their sends
	down    bool     // Probe fails
	missing map[string]bool
}

func (f *fakeSink) Send(batch []*outbox.Message, done func([]sink.Result)) {
	f.mu.Lock()
	var results []sink.Result
	for _, m := range batch {
		f.sent = append(f.sent, m.ID)
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
	if f.down {
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

// bench is a pipeline with fakes around it, running in a bubble of virtual time.
type bench struct {
	*Pipeline
	t        *testing.T
	ctx      context.Context
	sink     *fakeSink
	acks     *fakeAcks
	table    fakeTable
	triggers int
	next     uint64
}

// run gives f a running pipeline in a bubble and ends it afterwards.
func run(t *testing.T, cfg Config, f func(*bench)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{t: t, ctx: ctx, acks: &fakeAcks{}, table: fakeTable{}}
		b.sink = &fakeSink{answer: func(*outbox.Message) outbox.Outcome { return outbox.Outcome{} }, missing: map[string]bool{}}
		cfg.Trigger = func() { b.triggers++ }
		p, err := New(cfg, outbox.MySQL, outbox.Position{File: "binlog.000001", Offset: 4}, b.sink, b.acks, b.table, zap.NewNop(), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
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

// results makes the sink's late answer for rows that were sent before.
func results(_ *fakeSink, o outbox.Outcome, rows ...*outbox.Message) []sink.Result {
	var out []sink.Result
	for _, m := range rows {
		out = append(out, sink.Result{Message: m, Outcome: o})
	}
	return out
}
