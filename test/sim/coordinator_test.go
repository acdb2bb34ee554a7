package sim

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
)

// This file is Kafka's transactions: a coordinator with epochs (KIP-98), and partitions that it ends later than it answers, or forgets to end, see left_test.go.

const (
	stateTopic         = "__canal_outbox_state"
	transactionTimeout = 30 * time.Second
)

// cluster is what the brokers keep of transactions.
type cluster struct {
	ids     [kafka.TransactionalIDs]transactionalID
	entries []*kgo.Record // committed ones of the state topic
	last    uint64        // number of the newest
	visible time.Duration
	late    []func() // ends of transactions that are on the wire and without a process that waits
	breaks  int      // how often the brokers have lost all connections
}

// transactionalID has one transaction at a time.
type transactionalID struct {
	epoch int
	open  *txn // or ending; nil: none
	last  kafka.Fate
	left  []*left
	said  kafka.Fate // to a process whose mending broke off
	to    int        // its life
}

// txn is a transaction as the brokers know it.
type txn struct {
	id      int
	flights []*flight
	entry   *kgo.Record // nil: it has none yet
	began   time.Duration
	ending  bool // the coordinator has decided, and the partitions do not show it yet
}

// coordinator is kafka.Coordinator for one process.
type coordinator struct{ e *exactModel }

// Check implements kafka.Coordinator.
func (c coordinator) Check(ctx context.Context) error { return c.e.s.Probe(ctx) }

// way is that of a request to the coordinator; after an error it is not there.
func (c coordinator) way(ctx context.Context, what string) (*dice, error) {
	i := c.e.s.i
	w := i.w
	w.mu.Lock()
	d := w.dice(what, uint64(i.life))
	w.mu.Unlock()
	for {
		i.awaitWake()
		if i.step("before " + what) {
			return nil, errDead
		}
		if c.e.s.may != nil && !c.e.s.may() {
			return nil, sink.ErrMayNot
		}
		if err := sleep(ctx, d.between(100*time.Microsecond, 2*time.Millisecond)); err != nil {
			return nil, err
		}
		w.mu.Lock()
		down, is := i.brokerDown()
		dead := i.latest().dead
		w.mu.Unlock()
		pause := d.between(20*time.Millisecond, 100*time.Millisecond) // the library tries again
		switch {
		case dead:
			return nil, errDead
		case !is:
			c.overtaken(d)
			return d, nil
		case down.silent:
			pause = down.to - w.at() + d.between(0, time.Millisecond)
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// back is the way of an answer. It reports whether it came.
func (c coordinator) back(ctx context.Context, what string, d *dice) (came bool, err error) {
	i := c.e.s.i
	if err := sleep(ctx, d.between(10*time.Microsecond, 2*time.Millisecond)); err != nil {
		return false, err
	}
	i.awaitWake()
	if i.step("after " + what) {
		return false, errDead
	}
	return i.w.at() >= i.w.plan.healed || !d.chance(i.w.plan.lost), nil
}

// Open implements kafka.Coordinator: InitProducerId, again until an answer comes.
func (c coordinator) Open(ctx context.Context, n int, ends kafka.Ends) (kafka.Producer, error) {
	for {
		if p, err := c.init(ctx, n, ends); p != nil || err != nil {
			return p, err
		}
	}
}

// init returns neither a producer nor an error when the answer is lost.
func (c coordinator) init(ctx context.Context, n int, ends kafka.Ends) (kafka.Producer, error) {
	w := c.e.s.i.w
	d, err := c.way(ctx, "init")
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	id := &w.cluster.ids[n]
	if id.open != nil && !id.open.ending {
		w.abort(n)
	}
	id.epoch++
	if !w.mend(id, ends, c.e.s.i.life, d) {
		w.mu.Unlock()
		return nil, kerr.CoordinatorNotAvailable
	}
	p := &producer{c: c, e: c.e, id: n, epoch: id.epoch, breaks: w.cluster.breaks, dice: w.dice("producer", uint64(c.e.s.i.life))}
	w.note(c.e.s.i.life, "epoch", "", "", id.epoch*10+n)
	w.mu.Unlock()
	for ending := true; ending; { // CONCURRENT_TRANSACTIONS
		if err := sleep(ctx, 2*time.Millisecond+time.Duration(d.n(1000))); err != nil {
			return nil, err
		}
		w.mu.Lock()
		ending = id.open != nil && id.open.ending
		w.mu.Unlock()
	}
	came, err := c.back(ctx, "init", d)
	if !came || err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.e.producers = append(c.e.producers, p)
	return p, nil
}

// Read implements kafka.Coordinator. Compaction has taken all but the newest entry of each key.
func (c coordinator) Read(ctx context.Context) (entries []ledger.Entry, err error) {
	w := c.e.s.i.w
	d, err := c.way(ctx, "read")
	if err != nil {
		return nil, err
	}
	open := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.cluster.ids[:], func(id transactionalID) bool { return id.open != nil && id.open.entry != nil || id.leftIn(stateTopic) })
	}
	for open() {
		if err := sleep(ctx, 5*time.Millisecond+time.Duration(d.n(1000))); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	newest := map[string]*kgo.Record{}
	for _, r := range w.cluster.entries {
		newest[string(r.Key)] = r
	}
	keep := d.n(len(w.cluster.entries) + 1)
	for at, r := range w.cluster.entries {
		if e, ok := ledger.Decode(r.Value); ok && (at >= keep || newest[string(r.Key)] == r) {
			entries = append(entries, e)
		}
	}
	if len(entries) > 0 && !ledger.Whole(entries) {
		w.violation("exactly once", "an entry was compacted that is needed")
	}
	w.mu.Unlock()
	_, err = c.back(ctx, "read", d)
	return entries, err
}

// add stores a record in the open transaction. Callers hold mu.
func (w *world) add(s *sending) {
	id := &w.cluster.ids[s.p.id]
	if id.open == nil {
		t := &txn{id: s.p.id, began: w.at()}
		id.open = t
		time.AfterFunc(transactionTimeout, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if id.open == t && !t.ending { // the coordinator ends what a dead process has left
				id.epoch++
				w.abort(s.p.id)
			}
		})
	}
	if s.f == nil {
		id.open.entry = s.record
	} else {
		id.open.flights = append(id.open.flights, s.f)
	}
	if s.over {
		return
	}
	within := 2 * time.Millisecond
	if w.at() < w.plan.healed && s.p.dice.chance(w.plan.lost) { // the library asks again; the broker has the sequence number
		within = 900 * time.Millisecond
	}
	s.over = true
	time.AfterFunc(s.p.dice.between(within/10, within), func() { s.finish(nil) })
}

// decide is the decision of the coordinator. The partitions show it later.
func (w *world) decide(p *producer, commit bool, d *dice) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := &w.cluster.ids[p.id]
	switch {
	case id.epoch != p.epoch:
		return kerr.InvalidProducerEpoch
	case id.open == nil || id.open.ending:
		return kerr.InvalidTxnState
	case !commit:
		w.abort(p.id)
		return nil
	}
	t := id.open
	t.ending = true
	e, ok := ledger.Decode(t.entry.Value)
	if !ok || e.Number != w.cluster.last+1 {
		w.violation("exactly once", "transaction %d is committed after %d", e.Number, w.cluster.last)
	}
	w.cluster.last = e.Number
	w.note(p.e.s.i.life, "commit decided", "", "", int(e.Number))
	for _, f := range t.flights {
		f.decided = true
		w.store(p.e.s.i, f)
		w.checkCommitted(p, f)
	}
	id.last = kafka.Committed
	if w.forgets(t, true) {
		id.open = nil
		return nil
	}
	// One partition after the other, and none before those of an earlier transaction.
	w.cluster.visible = max(w.at()+d.between(0, 25*time.Millisecond), w.cluster.visible+time.Duration(1+d.n(1000)))
	time.AfterFunc(w.cluster.visible-w.at(), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		id.open = nil
		w.ends(id, t, true)
		w.reveal(t.entry)
	})
	return nil
}

// abort drops what is open. Callers hold mu.
func (w *world) abort(id int) {
	t := w.cluster.ids[id].open
	w.cluster.ids[id].open, w.cluster.ids[id].last = nil, kafka.Aborted
	w.note(0, "aborted", "", "", id)
	if t != nil && !w.forgets(t, false) {
		w.ends(&w.cluster.ids[id], t, false)
	}
}
