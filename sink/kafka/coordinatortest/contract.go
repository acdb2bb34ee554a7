// Package coordinatortest is the contract of kafka.Coordinator: what exactly_once relies on. It runs on Kafka, on the fake Kafka and on the model of
// the simulation, so that the model is not kinder than Kafka.
package coordinatortest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
)

// Brokers are brokers with an empty state topic.
type Brokers struct {
	// Process returns the coordinator as another process sees it.
	Process func() kafka.Coordinator
	// Record makes the record of an entry. Its context is what the producer needs.
	Record func(e *ledger.Entry) *kgo.Record
}

const (
	patience = time.Minute
	short    = 500 * time.Millisecond
)

// Run checks all rules, each on brokers of its own. run is called with each; it may put it into a bubble.
func Run(t *testing.T, run func(t *testing.T, rule func(*testing.T, Brokers))) {
	for name, rule := range map[string]func(*testing.T, Brokers){
		"committed entries are read":                          committedIsRead,
		"aborted entries are not read":                        abortedIsNotRead,
		"a new epoch ends what is open":                       openEndsWhatIsOpen,
		"a fenced producer ends nothing":                      fencedEndsNothing,
		"a fenced producer adds nothing":                      fencedAddsNothing,
		"reading waits for what is open":                      readWaits,
		"a closed producer answers what it holds":             closeAnswers,
		"an end without messages is no fault":                 emptyEnd,
		"entries are read in their order, over all ids":       order,
		"a transaction can follow one whose end was answered": follows,
	} {
		t.Run(name, func(t *testing.T) { run(t, rule) })
	}
}

// bed is one process of a trial.
type bed struct {
	t *testing.T
	Brokers
	kafka.Coordinator
	ledger *ledger.Ledger
	rows   int
}

func newBed(t *testing.T, b Brokers) *bed {
	return &bed{t: t, Brokers: b, Coordinator: b.Process(), ledger: ledger.New("process", ledger.Slots)}
}

func (b *bed) within(limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	b.t.Cleanup(cancel)
	return ctx
}

func (b *bed) open(id int) kafka.Producer {
	b.t.Helper()
	p, err := b.Open(b.within(patience), id, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(p.Close)
	return p
}

// next is the entry of the next transaction.
func (b *bed) next() *ledger.Entry {
	b.rows++
	return b.ledger.Next([]outbox.Identity{{Table: "s.t", ID: string(rune('a' + b.rows))}})
}

// produce sends an entry in a transaction and waits for the answer.
func (b *bed) produce(p kafka.Producer, e *ledger.Entry) error {
	if err := p.BeginTransaction(); err != nil {
		return err
	}
	answer := make(chan error, 1)
	r := b.Record(e)
	p.TryProduce(r.Context, r, func(_ *kgo.Record, err error) { answer <- err })
	select {
	case err := <-answer:
		return err
	case <-time.After(patience):
		return errors.New("no answer")
	}
}

// commit commits an entry.
func (b *bed) commit(p kafka.Producer) {
	b.t.Helper()
	e := b.next()
	err := b.produce(p, e)
	if err == nil {
		err = p.EndTransaction(b.within(patience), kgo.TryCommit)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.ledger.Committed(e)
}

// want fails unless these entries are read.
func (b *bed) want(numbers ...uint64) {
	b.t.Helper()
	entries, err := b.Read(b.within(patience))
	if err != nil {
		b.t.Fatal(err)
	}
	var got []uint64
	for _, e := range entries {
		got = append(got, e.Number)
	}
	if !slices.Equal(got, numbers) {
		b.t.Errorf("read %v, want %v", got, numbers)
	}
}

func committedIsRead(t *testing.T, brokers Brokers) {
	b := newBed(t, brokers)
	p := b.open(1)
	b.want()
	b.commit(p)
	b.want(1)
}

func abortedIsNotRead(t *testing.T, brokers Brokers) {
	b := newBed(t, brokers)
	p := b.open(1)
	if err := b.produce(p, b.next()); err != nil {
		t.Fatal(err)
	}
	if err := p.EndTransaction(b.within(patience), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	b.want()
	b.commit(p)
	b.want(1)
}

func openEndsWhatIsOpen(t *testing.T, brokers Brokers) {
	a, b := newBed(t, brokers), newBed(t, brokers)
	if err := a.produce(a.open(1), a.next()); err != nil {
		t.Fatal(err)
	}
	p := b.open(1)
	b.want()
	b.commit(p)
	b.want(1)
}

func fencedEndsNothing(t *testing.T, brokers Brokers) {
	a, b := newBed(t, brokers), newBed(t, brokers)
	old := a.open(1)
	if err := a.produce(old, a.next()); err != nil {
		t.Fatal(err)
	}
	p := b.open(1)
	if err := b.produce(p, b.next()); err != nil {
		t.Fatal(err)
	}
	if err := old.EndTransaction(a.within(patience), kgo.TryCommit); err == nil {
		t.Error("a fenced producer has committed")
	}
	if err := p.EndTransaction(b.within(patience), kgo.TryAbort); err != nil {
		t.Error(err)
	}
	b.want()
}

func fencedAddsNothing(t *testing.T, brokers Brokers) {
	a, b := newBed(t, brokers), newBed(t, brokers)
	old := a.open(1)
	a.commit(old)
	p := b.open(1)
	if err := a.produce(old, a.next()); err == nil {
		t.Error("a fenced producer has sent")
	}
	b.next()
	b.ledger = a.ledger
	b.want(1)
	p.Close()
}

func readWaits(t *testing.T, brokers Brokers) {
	b := newBed(t, brokers)
	p := b.open(1)
	e := b.next()
	if err := b.produce(p, e); err != nil {
		t.Fatal(err)
	}
	if entries, err := b.Read(b.within(short)); err == nil {
		t.Errorf("read %d entries during an open transaction", len(entries))
	}
	if err := p.EndTransaction(b.within(patience), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	b.want(1)
}

func closeAnswers(t *testing.T, brokers Brokers) {
	b := newBed(t, brokers)
	p := b.open(1)
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	r := b.Record(b.next())
	p.TryProduce(r.Context, r, func(_ *kgo.Record, err error) { answer <- err })
	p.Close()
	select {
	case <-answer: // or it was quick
	case <-time.After(patience):
		t.Error("no answer")
	}
	b.open(1)
	b.want()
}

func emptyEnd(t *testing.T, brokers Brokers) {
	b := newBed(t, brokers)
	p := b.open(1)
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := p.EndTransaction(b.within(patience), kgo.TryAbort); err != nil {
		t.Error(err)
	}
	b.commit(p)
	b.want(1)
}

func order(t *testing.T, brokers Brokers) {
	b := newBed(t, brokers)
	var producers []kafka.Producer
	for id := range kafka.TransactionalIDs {
		producers = append(producers, b.open(id))
	}
	for range 2 {
		for _, p := range producers {
			b.commit(p)
		}
	}
	b.want(1, 2, 3, 4, 5, 6, 7, 8)
}

func follows(t *testing.T, brokers Brokers) {
	b := newBed(t, brokers)
	p := b.open(1)
	for range 5 {
		b.commit(p)
	}
	b.want(1, 2, 3, 4, 5)
}
