// Package flowtest has what tests of the flow's parts share: fakes of the sink, the acknowledgements and the table around a real pipeline, in a
// bubble of virtual time. No part of the relay imports it.
package flowtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/pipeline"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
	"github.com/canal-outbox/canal-outbox/pipeline/recovery"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// World is a pipeline with its parts, and fakes around it. Each test looks at some of them, so each is a field.
type World struct {
	*pipeline.Pipeline
	Tracker  *tracker.Tracker
	Dispatch *dispatch.Dispatch
	Recovery *recovery.Recovery

	T     *testing.T
	Ctx   context.Context
	Sink  *Sink
	Acks  *Acks
	Logs  *observer.ObservedLogs
	Reg   *prometheus.Registry
	Next  uint64          // number of the last transaction of the log
	Asked []time.Duration // of DueIn

	mu       sync.Mutex
	rows     Table            // which the pipeline may read at any time
	failing  map[string]error // the tables that cannot be read
	triggers int

	lists, wholes int // look-ups row by row, and of rows as a whole
}

// Run gives body a running pipeline in a bubble of virtual time and ends it afterwards. Tables that keep the order of their keys were read.
func Run(t *testing.T, cfg dispatch.Config, rows Table, body func(*World)) {
	RunAfter(t, cfg, rows, nil, body)
}

// RunAfter is Run after an earlier process that was killed.
func RunAfter(t *testing.T, cfg dispatch.Config, rows Table, earlier recovery.Earlier, body func(*World)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &World{T: t, Ctx: ctx, Acks: &Acks{}, rows: rows, failing: map[string]error{}, Reg: prometheus.NewRegistry()}
		w.Sink = &Sink{Answer: Always(outbox.Outcome{}), Missing: map[string]bool{}, Hands: map[string]*outbox.Message{}}
		core, logs := observer.New(zap.InfoLevel)
		log := zap.New(core)
		w.Logs = logs
		var err error
		if w.Tracker, err = tracker.New(outbox.MySQL, outbox.Position{File: "binlog.000001", Offset: 4}, w, log, w.Reg); err != nil {
			t.Fatal(err)
		}
		w.Dispatch = dispatch.New(cfg, w.Tracker, w, w.Sink, w.Acks, counted{rows, w}, log, w.Reg)
		w.Recovery = recovery.New(w.Tracker, w.Dispatch, w, counted{rows, w}, earlier, log, w.Reg)
		w.Pipeline = pipeline.New(w.Tracker, w.Dispatch, w.Recovery, w, w.Reg)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		if len(cfg.Ordered) > 0 {
			synctest.Wait()
		}
		body(w)
		cancel()
		<-done
	})
}

// counted is the table as the flow asks for it; it counts the look-ups.
type counted struct {
	Table
	b *World
}

func (c counted) States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.lists++
	if err := c.b.fails(ids); err != nil {
		return nil, err
	}
	return c.Table.States(ctx, ids)
}

func (c counted) Untouched(ctx context.Context, ids []outbox.Identity) (bool, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.wholes++
	if err := c.b.fails(ids); err != nil {
		return false, err
	}
	return c.Table.Untouched(ctx, ids)
}

func (c counted) Due(ctx context.Context, name string, from table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if err := c.b.failing[name]; err != nil {
		return nil, table.Cursor{}, err
	}
	return c.Table.Due(ctx, name, from, q)
}

// fails returns the error of the first table that cannot be read. Callers hold mu.
func (b *World) fails(ids []outbox.Identity) error {
	for _, id := range ids {
		if err := b.failing[id.Table]; err != nil {
			return err
		}
	}
	return nil
}

// Fail makes each question about a table fail; nil: no more.
func (b *World) Fail(name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing[name] = err
}

// Change changes the table while the pipeline may read it.
func (b *World) Change(f func(rows Table)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b.rows)
}

// SetRow is Change of one row.
func (b *World) SetRow(id string, c outbox.Candidate) { b.Change(func(rows Table) { rows[id] = c }) }

// LookUps returns how often the table was asked row by row and for rows as a whole since the last call.
func (b *World) LookUps() (lists, wholes int) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	lists, wholes, b.lists, b.wholes = b.lists, b.wholes, 0, 0
	return lists, wholes
}

// Trigger implements tracker.Sweeps.
func (b *World) Trigger() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.triggers++
}

// DueIn implements tracker.Sweeps.
func (b *World) DueIn(_ outbox.Identity, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Asked = append(b.Asked, d)
}

// Triggered returns how many triggers there were since the last call.
func (b *World) Triggered() int {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.triggers
	b.triggers = 0
	return n
}

// ReserveRows reserves the rows of messages for the sweep, and returns their candidates.
func (b *World) ReserveRows(rows ...*outbox.Message) []outbox.Candidate {
	var list []outbox.Candidate
	for _, m := range rows {
		list = append(list, outbox.Candidate{Identity: m.Identity, Topic: m.Topic})
	}
	free, _ := b.Reserve(list)
	return free
}

// PublishRows does what a sweep does with rows that have no owner.
func (b *World) PublishRows(ctx context.Context, rows ...*outbox.Message) error {
	for i, c := range b.ReserveRows(rows...) {
		rows[i].Entry = c.Entry
	}
	_, err := b.Publish(ctx, rows, nil)
	return err
}

// Answer is the sink's late answer for rows that were sent before.
func (b *World) Answer(o outbox.Outcome, rows ...*outbox.Message) {
	var out []sink.Result
	b.Sink.Set(func() {
		for _, m := range rows {
			out = append(out, sink.Result{Message: b.Sink.Hands[m.ID], Outcome: o})
		}
	})
	b.Sink.Done(out)
}

// Txn makes the next transaction of the log.
func (b *World) Txn(rows ...*outbox.Message) *outbox.Txn {
	b.Next++
	return &outbox.Txn{End: End(b.Next), GTID: outbox.GTID{Source: UUID, Seq: b.Next}, Messages: rows}
}

// OfferRows offers the next transaction of the log.
func (b *World) OfferRows(rows ...*outbox.Message) {
	b.T.Helper()
	if err := b.Offer(b.Ctx, b.Txn(rows...)); err != nil {
		b.T.Fatal(err)
	}
	synctest.Wait()
}

// WantCompletions compares the completions that ack was given.
func (b *World) WantCompletions(want ...string) {
	b.T.Helper()
	synctest.Wait()
	if got := b.Acks.Completions(); fmt.Sprint(got) != fmt.Sprint(want) {
		b.T.Fatalf("completions %v, want %v", got, want)
	}
}

// WantSent compares the ids that the sink was given, in order.
func (b *World) WantSent(want ...string) {
	b.T.Helper()
	synctest.Wait()
	if got := b.Sink.IDs(); fmt.Sprint(got) != fmt.Sprint(want) {
		b.T.Fatalf("sent %v, want %v", got, want)
	}
}

// Wrote makes what ack has been given a part of the table.
func (b *World) Wrote() {
	synctest.Wait()
	list := b.Acks.Take()
	b.Change(func(all Table) {
		for _, c := range list {
			state := all[c.ID]
			switch c.Action {
			case outbox.ActionMarkSent:
				state.Status = outbox.Sent
			case outbox.ActionFail:
				state.Status = outbox.Failed
			case outbox.ActionRetry:
				state.RetryCount, state.Waiting, state.DueInMilli = c.RetryCount+1, true, c.Delay.Milliseconds()
			}
			all[c.ID] = state
		}
	})
	b.Tracker.Settled(list)
	b.Tracker.Written(list)
	time.Sleep(time.Second) // the order looks at the table
	synctest.Wait()
}

// Sweep publishes rows as a sweep does, and returns those that it must leave alone.
func (b *World) Sweep(rows ...*outbox.Message) (alone []string) {
	b.T.Helper()
	var list []outbox.Candidate
	byID := map[string]*outbox.Message{}
	for _, m := range rows {
		byID[m.ID] = m
		list = append(list, outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.ShardingKey})
	}
	free, left := b.Reserve(list)
	for _, c := range left {
		alone = append(alone, c.ID)
	}
	var take []*outbox.Message
	for _, c := range free {
		m := byID[c.ID]
		m.Entry, m.Claim, m.Path = c.Entry, "token", outbox.PathSweep
		take = append(take, m)
	}
	if len(take) > 0 {
		if _, err := b.Publish(b.Ctx, take, nil); err != nil {
			b.T.Fatal(err)
		}
	}
	synctest.Wait()
	return alone
}

// Background offers a transaction that does not fit; it ends with the test.
func (b *World) Background(offer func(context.Context) error) {
	ctx, cancel := context.WithCancel(b.Ctx)
	b.T.Cleanup(cancel)
	go func() { _ = offer(ctx) }() // it is cut off at the end
	synctest.Wait()
}

// Pending makes rows visible in the table.
func (b *World) Pending(rows ...*outbox.Message) {
	b.Change(func(all Table) {
		for _, m := range rows {
			all[m.ID] = outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.ShardingKey}
		}
	})
}

// OfferDeferred offers a transaction in which the reader has deferred a row, and other rows with it.
func (b *World) OfferDeferred(d outbox.Deferred, rows ...*outbox.Message) {
	b.T.Helper()
	txn := b.Txn(rows...)
	txn.Deferred = []outbox.Deferred{d}
	if err := b.Offer(b.Ctx, txn); err != nil {
		b.T.Fatal(err)
	}
	synctest.Wait()
}
