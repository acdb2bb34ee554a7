package flowtest

import (
	"context"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// Way is dispatch with the calls of a reader and a sweep, without a recovery window: rows of the log go to the sink whatever their status.
type Way struct {
	*World
	*dispatch.Dispatch
}

// NewWay makes the way to the world's sink.
func NewWay(cfg dispatch.Config, w *World) *Way {
	return &Way{w, dispatch.New(cfg, w.Tracker, w, w.Sink, w.Acks, w.Rows(), w.Log, w.Reg)}
}

// Offer takes one transaction over. After an error, which is that of ctx, the same transaction may be offered again.
func (w *Way) Offer(ctx context.Context, txn *outbox.Txn) error {
	w.Deferred(txn.Deferred)
	seq := w.Tracker.Begin(txn)
	if rest, err := w.Send(ctx, w.Tracker.Admit(seq, txn.Messages, nil)); err != nil {
		w.Tracker.Withdraw(txn, seq, rest)
		return err
	}
	w.Tracker.SetOffered(txn.End)
	return nil
}

// Send hands rows to dispatch. With an error, which is that of ctx, it returns those that were not taken.
func (w *Way) Send(ctx context.Context, rows []*tracker.Entry) (rest []*tracker.Entry, err error) {
	for len(rows) > 0 {
		n, err := w.Dispatch.Publish(ctx, rows)
		if err != nil {
			return rows, err
		}
		rows = rows[n:]
	}
	return nil, nil
}

// Publish hands rows of a sweep over. It returns how many were taken.
func (w *Way) Publish(ctx context.Context, rows []*outbox.Message, rejected []outbox.Completion) (taken int, err error) {
	for i := range rejected {
		w.Reject(rejected[i])
	}
	var entries []*tracker.Entry
	for _, m := range rows {
		if e, ok := w.Tracker.ReadBack(m); ok {
			entries = append(entries, e)
		}
	}
	rest, err := w.Send(ctx, entries)
	return len(rows) - len(rest), err
}

// Snapshot is dispatch's state and the number of rows that are owned.
type Snapshot struct {
	dispatch.State
	Owned int
}

// Snapshot returns the state at this moment.
func (w *Way) Snapshot() Snapshot { return Snapshot{w.State(), w.Tracker.Owned()} }
