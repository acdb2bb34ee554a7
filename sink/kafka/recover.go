package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
	"go.uber.org/zap"
)

// Recover implements sink.Prover.
func (x *Exactly) Recover(ctx context.Context, tables []string) ([]outbox.Identity, error) {
	x.tables = tables
	if err := x.coordinator.Check(ctx); err != nil {
		return nil, err
	}
	if err := x.open(ctx); err != nil {
		return nil, err
	}
	entries, err := x.coordinator.Read(ctx)
	if err != nil {
		return nil, err
	}
	if n := len(entries); n > 0 && len(entries[n-1].Tables) > 0 && !slices.ContainsFunc(entries[n-1].Tables, func(t string) bool { return slices.Contains(tables, t) }) {
		x.producers.dropAll()
		return nil, &sink.NoProofError{Why: fmt.Sprintf("the transactional id %s is used by a relay of the tables %s, and this one publishes %s: give each "+
			"relay its own sink.kafka.transactional_id", x.name, strings.Join(entries[n-1].Tables, ", "), strings.Join(tables, ", "))}
	}
	rows := x.ledger.Restore(entries)
	x.mu.Lock()
	x.ready = true
	x.mu.Unlock()
	return rows, nil
}

// open begins a new epoch of each id: readers of the state topic wait for what any of them has left open.
func (x *Exactly) open(ctx context.Context) error {
	x.producers.dropAll()
	for id := range x.producers {
		p, err := x.coordinator.Open(ctx, id, x.ends[id])
		if err != nil {
			return err
		}
		x.producers[id] = p
	}
	return nil
}

// producer returns the producer for a transaction.
func (x *Exactly) producer(e *ledger.Entry) (Producer, error) {
	if fenced := x.fenced.Load(); fenced != nil {
		return nil, *fenced
	}
	_, at := x.producers.of(e.Number)
	if *at == nil || x.producers.failed() {
		if err := x.reopen(e.Number, false); err != nil {
			return nil, err
		}
	}
	return *at, nil
}

// reopen begins a new epoch, which ends whatever the old one has under way, and looks at the entries. sought: for the one with this number;
// errFound: it is there. If another process has written an entry since, this one sends no more: it does not know what the other has sent.
func (x *Exactly) reopen(number uint64, sought bool) error {
	ctx, cancel := context.WithTimeout(x.ctx, reopenLimit)
	defer cancel()
	if err := x.open(ctx); err != nil {
		return err
	}
	entries, err := x.coordinator.Read(ctx)
	if err != nil {
		x.producers.dropAll()
		return err
	}
	if len(entries) == 0 && number == 1 {
		return nil
	}
	if len(entries) == 0 {
		x.producers.dropAll()
		return incomplete(x.cfg, x.topic)
	}
	switch newest := entries[len(entries)-1]; {
	case sought && newest.Process == x.process && newest.Number == number:
		return errFound
	case newest.Number+1 == number:
		return nil
	default:
		x.producers.dropAll()
		err := fmt.Errorf("another process has published with the transactional id %s since this one began: end it, or give each its own "+
			"sink.kafka.transactional_id, and restart this one", x.name)
		x.fenced.Store(&err)
		x.log.Error("nothing is sent any more", zap.Error(err))
		return err
	}
}

// errFound reports that the state topic has the entry that was looked for.
var errFound = errors.New("the entry is there")
