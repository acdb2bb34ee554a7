package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
	"go.uber.org/zap"
)

const (
	maxTransactionBytes = 8 << 20 // of messages

	// openLimit is how long a transaction waits for the brokers' answers to its messages, restLimit how long once its entry is stored, and
	// endLimit how long it then waits for its end: readers of a topic wait for the transactions that are open in it.
	openLimit = 5 * time.Second
	restLimit = 2 * time.Second
	endLimit  = 3 * time.Second

	// reopenLimit bounds one try to begin a new epoch.
	reopenLimit = 10 * time.Second

	// transactionTimeout is when the coordinator aborts a transaction by itself: of a process that was killed and does not come back.
	transactionTimeout = 30 * time.Second

	// idleMark is how long nothing is sent until a transaction without messages says which rows are settled.
	idleMark = time.Second
)

// Bounds of what a relay has in its transactions. The simulation draws smaller ones.
type Bounds struct {
	Messages int    // of a transaction
	Slots    uint64 // transactions that the state topic keeps, at most ledger.Slots
}

var usualBounds = Bounds{Messages: 1000, Slots: ledger.Slots}

// errLate is the error of a message that got no answer in time.
var errLate = errors.New("no answer in time: its transaction is aborted")

// Exactly is the Sink with exactly_once: each transaction has messages and one record that says which rows they are of. So the record is in the
// state topic if and only if the messages are visible to readers of committed records. Source: KIP-98, KIP-360, KIP-890.
//
// Invariants:
// - A message is reported as sent only after the end of its transaction was acknowledged, or its record was found.
// - A transaction is ended once. If the answer does not come, a new producer epoch fences the old one, and the record is looked for.
// - Transactions follow one another, so they become visible in the order of their numbers.
// - What the brokers leave open in partitions, this process ends as it was decided, see brokers.mend.
//
// It owns one goroutine, which builds and ends the transactions.
type Exactly struct {
	*Sink
	coordinator Coordinator
	name        string // the transactional ids without their numbers
	topic       string // of the entries
	bounds      Bounds
	process     string
	tables      []string
	ledger      *ledger.Ledger

	mu    sync.Mutex
	queue []*delivery
	marks []chan<- error // of calls of Mark that wait
	ready bool           // Recover has returned without an error

	wake    chan struct{} // gets a token when queue or marks changed
	ctx     context.Context
	stop    context.CancelFunc
	stopped chan struct{}         // closed when run has ended
	fenced  atomic.Pointer[error] // another process has the name

	producers producers              // of run, and of Recover and Finish while it does not run
	ends      [TransactionalIDs]Ends // likewise, in this process; what was learned once is kept, because the coordinator says it only once
	unmarked  bool                   // the last idle mark failed; of run
	unsure    *ledger.Entry          // of the transaction that was being ended when run was stopped; nil: none
}

var _ sink.Prover = (*Exactly)(nil)

// exactly makes s send in transactions.
func exactly(s *Sink, name string, c Coordinator, b Bounds) *Exactly {
	process := rand.Text()
	s.committed = true
	ctx, stop := context.WithCancel(context.Background())
	x := &Exactly{
		Sink: s, coordinator: c, bounds: b, name: name, topic: stateTopic(name), process: process, ledger: ledger.New(process, b.Slots),
		wake: make(chan struct{}, 1), ctx: ctx, stop: stop, stopped: make(chan struct{}),
	}
	for id := range x.ends {
		x.ends[id] = Ends{Place{x.topic, 0}: Unsure} // a dead process may have left its entry open
	}
	go x.run()
	return x
}

// Send implements sink.Sink.
func (x *Exactly) Send(messages []*outbox.Message, done func([]sink.Result)) {
	x.life.RLock()
	defer x.life.RUnlock()
	list := slices.Collect(x.accepted(messages, done))
	x.mu.Lock()
	ready := x.ready
	if ready {
		x.queue = append(x.queue, list...)
	}
	x.mu.Unlock()
	if ready {
		signal(x.wake)
		return
	}
	for _, d := range list {
		x.results.finish(d, notReady)
	}
}

var notReady = outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: "Kafka: the state topic was not read yet"}

// Probe implements sink.Sink.
func (x *Exactly) Probe(ctx context.Context) error {
	if fenced := x.fenced.Load(); fenced != nil {
		return *fenced
	}
	return x.Sink.Probe(ctx)
}

// Settled implements sink.Prover.
func (x *Exactly) Settled(list []outbox.Completion) {
	x.ledger.Settle(func(yield func(outbox.Identity) bool) {
		for i := range list {
			if !yield(list[i].Identity) {
				return
			}
		}
	})
}

// Mark implements sink.Prover.
func (x *Exactly) Mark(ctx context.Context) error {
	done := make(chan error, 1)
	x.mu.Lock()
	x.marks = append(x.marks, done)
	x.mu.Unlock()
	signal(x.wake)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the record of what is settled was not stored: %w", context.Cause(ctx))
	case <-x.stopped:
		return errClosed
	}
}

// run sends what is queued until it is stopped.
func (x *Exactly) run() {
	defer close(x.stopped)
	idle := time.NewTimer(idleMark)
	defer idle.Stop()
	for x.ctx.Err() == nil {
		select {
		case <-x.ctx.Done():
		case <-idle.C:
			x.idle()
			idle.Reset(idleMark)
		case <-x.wake:
			x.work()
			idle.Reset(idleMark)
		}
	}
	x.mu.Lock()
	rest := x.queue
	x.queue, x.ready = nil, false
	x.mu.Unlock()
	for _, d := range rest {
		x.results.finish(d, sink.Closed)
	}
}

// idle ends a transaction whose messages got no answer, because readers wait behind it, and marks what is settled.
func (x *Exactly) idle() {
	if !x.isReady() {
		return
	}
	if e := x.ledger.Next(nil); e != nil {
		_, _ = x.producer(e) // tried again after a second, and with the next message, whose result says why it fails
	}
	x.logMark(x.mark())
}

func (x *Exactly) work() {
	for x.ctx.Err() == nil {
		list, marks := x.take()
		if len(list) == 0 && len(marks) == 0 {
			return
		}
		x.publish(list)
		for _, done := range marks {
			done <- x.mark()
		}
	}
}

// take returns the messages of the next transaction, and all marks.
func (x *Exactly) take() (list []*delivery, marks []chan<- error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	bytes, rows, n := 0, 0, 0
	for n < len(x.queue) && n < x.bounds.Messages && bytes < maxTransactionBytes && rows < ledger.MaxOwnBytes {
		bytes, rows = bytes+x.queue[n].message.Size(), rows+ledger.Size(x.queue[n].message.Identity)
		n++
	}
	list, marks = x.queue[:n:n], x.marks
	if x.queue, x.marks = x.queue[n:], nil; len(x.queue) == 0 {
		x.queue = nil
	}
	return list, marks
}

// mark stores which rows are not settled, unless the newest record says the same.
func (x *Exactly) mark() error {
	if !x.isReady() {
		return errors.New(notReady.Reason)
	}
	for again := 0; ; {
		e := x.ledger.Mark()
		if e == nil {
			return nil
		}
		switch t := x.transact(nil, e); {
		case t.verdict == committed:
		case t.verdict == aborted && t.began && again == 0 && x.ctx.Err() == nil:
			again++ // as publish does
		default:
			return t.err
		}
	}
}

func (x *Exactly) isReady() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ready
}

// logMark logs the first of several failures.
func (x *Exactly) logMark(err error) {
	first := !x.unmarked
	if x.unmarked = err != nil; x.unmarked && first && x.ctx.Err() == nil {
		x.log.Warn("Kafka does not take the record of what is settled: rows that are set back by hand now may not be sent again after a kill", zap.Error(err))
	}
}

// Close implements sink.Sink.
func (x *Exactly) Close(ctx context.Context) error {
	x.life.Lock()
	x.closed = true
	x.life.Unlock()
	x.drain(ctx.Done())
	x.stop()
	<-x.stopped
	return x.Sink.Close(ctx)
}

// Finish implements sink.Prover.
func (x *Exactly) Finish(ctx context.Context) error {
	defer x.producers.dropAll()
	if x.producers == (producers{}) && x.unsure == nil || x.fenced.Load() != nil {
		return nil
	}
	x.ctx, x.stop = context.WithCancel(ctx)
	defer x.stop()
	if x.unsure != nil {
		if t := x.resolve(x.unsure); t.verdict == unsure || x.fenced.Load() != nil {
			return t.err
		}
	}
	x.mu.Lock()
	x.ready = true
	x.mu.Unlock()
	return x.mark()
}
