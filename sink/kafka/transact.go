package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

type verdict uint8

const (
	committed verdict = iota + 1
	aborted           // nothing of it will ever be visible
	unsure            // the sink was stopped before that was known
)

// transaction is the result of one.
type transaction struct {
	verdict verdict
	err     error               // aborted: of the transaction as a whole; nil: of some messages
	failed  map[*delivery]error // aborted: of messages
	began   bool                // a new one may do better at once
}

// errTooManyOpen stops the intake: the state topic cannot take over more rows.
var errTooManyOpen = errors.New("too many rows of earlier transactions are published and not shown as SENT by their tables: nothing is sent until " +
	"they are; see `canal-outbox status`")

// transact sends messages and the entry in one transaction and ends it.
func (x *Exactly) transact(list []*delivery, e *ledger.Entry) transaction {
	client, err := x.producer(e)
	if err != nil {
		return transaction{verdict: aborted, err: err}
	}
	if err := client.BeginTransaction(); err != nil {
		x.producers.drop(e.Number)
		return transaction{verdict: aborted, err: err, began: true}
	}
	e.Tables = x.tables
	record := newBatch([]*outbox.Message{{Topic: x.topic, Partition: 0, Body: e.Encode()}}, nil)
	own := &record.deliveries[0]
	own.record = kgo.Record{Topic: x.topic, Partition: -1, Key: e.Key(), Value: own.message.Body, Context: own}
	a := newAnswers(len(list)+1, own)
	for _, d := range list {
		d.partitions, d.away = 0, false
		d.record.Timestamp = time.Time{} // the time of this try
		d.record.Partition = -1          // it has none yet
		client.TryProduce(d, &d.record, a.answered)
	}
	client.TryProduce(own, &own.record, a.answered)
	late := !x.await(a)
	if late {
		x.producers.drop(e.Number) // the next epoch aborts it, at the latest the coordinator does
		<-a.done
		a.late()
	}
	x.completion(own, a.failed[own]) // ends the count at its partition
	switch {
	case len(a.failed) == 0 && !late:
		return x.end(list, e)
	case len(a.failed) == 0:
		x.ended(list, e, Unsure) // as in abort
		return transaction{verdict: aborted, err: errLate, began: true}
	}
	x.abort(list, e)
	if topics := ofTopics(a.failed, own); len(topics) > 0 { // the others may have failed with them (AddPartitionsToTxn)
		return transaction{verdict: aborted, failed: topics}
	}
	if err, is := a.failed[own]; is {
		x.producers.drop(e.Number) // brokers before 4.0 say here that another process has begun an epoch
		return transaction{verdict: aborted, err: fmt.Errorf("topic %s: %w", x.topic, err), began: true}
	}
	for _, err := range a.failed {
		if ofTransaction(err) {
			x.producers.drop(e.Number)
			return transaction{verdict: aborted, err: err, began: true}
		}
	}
	return transaction{verdict: aborted, failed: a.failed}
}

// await returns when all messages have an answer; false: the time is up, or the sink is stopped.
func (x *Exactly) await(a *answers) bool {
	limit := time.NewTimer(openLimit)
	defer limit.Stop()
	answering := a.answering
	for {
		select {
		case <-a.done:
			return true
		case <-answering: // brokers answer: what gets no answer now is of a partition that is away
			limit.Reset(restLimit)
			answering = nil
		case <-limit.C:
			return false
		case <-x.ctx.Done():
			return false
		}
	}
}

// answers collects those to the messages of a transaction.
type answers struct {
	own       *delivery     // the entry's
	answering chan struct{} // closed when own is stored
	done      chan struct{} // closed when left is 0

	mu     sync.Mutex
	left   int
	failed map[*delivery]error
}

func newAnswers(n int, own *delivery) *answers {
	return &answers{own: own, answering: make(chan struct{}), done: make(chan struct{}), left: n, failed: map[*delivery]error{}}
}

// answered is the promise of each record.
func (a *answers) answered(r *kgo.Record, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch d := r.Context.(*delivery); {
	case err != nil:
		a.failed[d] = err
	case d == a.own:
		close(a.answering)
	}
	if a.left--; a.left == 0 {
		close(a.done)
	}
}

// late names the reason of the messages that a closed client gave back.
func (a *answers) late() {
	for d, err := range a.failed {
		if errors.Is(err, kgo.ErrClientClosed) {
			a.failed[d] = errLate
		}
	}
}

// abort ends the transaction without its messages. If that fails, the next epoch does.
func (x *Exactly) abort(list []*delivery, e *ledger.Entry) {
	x.metrics.transactions.WithLabelValues("aborted").Inc()
	x.ended(list, e, Unsure) // the coordinator may never have had it: then the one before counts
	_, client := x.producers.of(e.Number)
	if *client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(x.ctx, endLimit)
	defer cancel()
	if _, err := within(ctx, func() (struct{}, error) { return struct{}{}, (*client).EndTransaction(ctx, kgo.TryAbort) }); err != nil {
		x.producers.drop(e.Number)
	}
}

// end commits a transaction, and finds out whether it was committed when the answer does not come.
func (x *Exactly) end(list []*delivery, e *ledger.Entry) transaction {
	ctx, cancel := context.WithTimeout(x.ctx, endLimit)
	defer cancel()
	_, client := x.producers.of(e.Number)
	_, err := within(ctx, func() (struct{}, error) { return struct{}{}, (*client).EndTransaction(ctx, kgo.TryCommit) })
	if err == nil {
		x.ledger.Committed(e)
		x.ended(list, e, Committed)
		x.metrics.transactions.WithLabelValues("committed").Inc()
		return transaction{verdict: committed}
	}
	x.ended(list, e, Unsure)
	x.producers.drop(e.Number)
	x.log.Warn("Kafka did not say whether a transaction was committed: looking for its record", zap.Uint64("transaction", e.Number), zap.Error(err))
	t := x.resolve(e)
	switch t.verdict {
	case committed:
		x.ended(list, e, Committed) // also where that could not be seen
		x.metrics.transactions.WithLabelValues("committed").Inc()
	case aborted:
		x.ended(list, e, Aborted)
		x.metrics.transactions.WithLabelValues("aborted").Inc()
	case unsure:
		x.unsure = e
	}
	return t
}

// ended notes how a transaction ended in its partitions, after the answers to its messages.
func (x *Exactly) ended(list []*delivery, e *ledger.Entry, fate Fate) {
	id, _ := x.producers.of(e.Number)
	x.ends[id][Place{x.topic, 0}] = fate
	for _, d := range list {
		if d.record.Partition >= 0 {
			x.ends[id][Place{d.message.Topic, d.record.Partition}] = fate
		}
	}
}

// resolve looks for the entry of a transaction whose end had no answer, behind a new epoch: what is not there then will never be.
func (x *Exactly) resolve(e *ledger.Entry) transaction {
	for n := 0; ; n++ {
		if !outbox.Wait(x.ctx, openPauses.Delay(n, 1), nil) {
			return transaction{verdict: unsure, err: errClosed}
		}
		err := x.reopen(e.Number, true)
		switch {
		case err == nil:
			x.log.Info("the transaction was not committed", zap.Uint64("transaction", e.Number))
			return transaction{verdict: aborted, err: errNotCommitted, began: true}
		case errors.Is(err, errFound):
			x.log.Info("the transaction was committed", zap.Uint64("transaction", e.Number))
			x.ledger.Committed(e)
			return transaction{verdict: committed}
		case x.fenced.Load() != nil:
			return transaction{verdict: aborted, err: err}
		}
	}
}

var openPauses = outbox.Backoff{Base: 20 * time.Millisecond, Max: 2 * time.Second}

// errNotCommitted: the messages go again at once.
var errNotCommitted = errors.New("the transaction was not committed")

// ofTopics returns the messages whose topic is missing or may not be written.
func ofTopics(failed map[*delivery]error, own *delivery) map[*delivery]error {
	found := map[*delivery]error{}
	for d, err := range failed {
		if class, _ := classOf(err); d != own && class == outbox.ClassTopic && !errors.Is(err, kerr.UnknownTopicID) {
			found[d] = err
		}
	}
	return found
}

// ofTransaction reports errors that concern the transaction or its producer and no single message.
func ofTransaction(err error) bool {
	switch {
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kgo.ErrAborting), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return true
	}
	var code *kerr.Error
	if !errors.As(err, &code) {
		return false
	}
	switch code {
	case kerr.UnknownTopicID, // the topic was deleted and created again: a new client gets its new id
		kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.InvalidProducerIDMapping, kerr.UnknownProducerID,
		kerr.OutOfOrderSequenceNumber, kerr.TransactionAbortable, kerr.OperationNotAttempted, kerr.ConcurrentTransactions,
		kerr.TransactionCoordinatorFenced, kerr.TransactionalIDAuthorizationFailed, kerr.CoordinatorNotAvailable, kerr.NotCoordinator,
		kerr.CoordinatorLoadInProgress, kerr.TransactionalIDNotFound:
		return true
	}
	return false
}

// TransactionalIDs is the number of ids that are used alternately: a broker takes no message of a transaction while it still writes the end of that id's
// previous one, and lets the producer wait for 20 ms (add.partitions.to.txn.retry.backoff.ms). With two, that was the p99 at 500 messages a second.
const TransactionalIDs = 4

// producers has one for each id; nil: to be made.
type producers [TransactionalIDs]Producer

// of is where the producer of a transaction is kept.
func (p *producers) of(number uint64) (id int, at *Producer) {
	id = int(number % uint64(len(p)))
	return id, &p[id]
}

// drop closes the producer of a transaction, which answers what it holds.
func (p *producers) drop(number uint64) {
	if _, at := p.of(number); *at != nil {
		go (*at).Close() // it may wait for a connection that is being made
		*at = nil
	}
}

// failed reports that a connection of one was lost.
func (p *producers) failed() bool {
	return slices.ContainsFunc(p[:], func(p Producer) bool { return p != nil && p.Failed() })
}

func (p *producers) dropAll() {
	for i := range p {
		p.drop(uint64(i))
	}
}
