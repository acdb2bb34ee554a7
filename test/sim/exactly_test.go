package sim

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
)

// This file is for the seeds with sink.kafka.exactly_once: the real sink runs there, on the model of coordinator_test.go. A reader of committed
// records must get each row once.

// drawExactly draws whether a plan's processes send in transactions.
func (p *plan) drawExactly(seed uint64) {
	d := newDice(seed, "exactly once")
	if p.exactly = d.chance(0.3); p.exactly {
		p.readBack = nil
		p.bounds = kafka.Bounds{Messages: pick(d, 1, 2, 5, 1000), Slots: pick(d, uint64(1), 2, 5, ledger.Slots)}
	}
}

// exactModel is the sink of a process that sends in transactions.
type exactModel struct {
	*kafka.Exactly
	s *sinkModel

	// Guarded by world.mu.
	sent      map[string]*flight // by message id: the last one that was handed over
	producers []*producer
}

var _ sink.Prover = (*exactModel)(nil)

// newExact makes the real sink for a process.
func newExact(s *sinkModel) (*exactModel, error) {
	section := kafka.NewSection()
	section.Brokers = []string{"127.0.0.1:1"} // nothing connects to it
	e := &exactModel{s: s, sent: map[string]*flight{}}
	var err error
	e.Exactly, err = section.OpenOn(coordinator{e}, s.i.w.plan.bounds, sink.Limits{Messages: 10_000, Bytes: 64 << 20, May: s.may}, s.i.log, registerer{s.i})
	return e, err
}

// runExactly runs a relay that sends in transactions.
func (i *incarnation) runExactly(state *state, s *sinkModel) (err error) {
	if s.exact, err = newExact(s); err != nil {
		return err
	}
	return i.relayOn(state, s, s.exact, i.stateLost(), nil, nil).Run(i.ctx)
}

// Send implements sink.Sink.
func (e *exactModel) Send(list []*outbox.Message, done func([]sink.Result)) {
	i := e.s.i
	if i.step("send") {
		return
	}
	w := i.w
	w.mu.Lock()
	var known []*outbox.Message
	for _, m := range list {
		if r := w.handedOver(i, m); r != nil {
			known = append(known, m)
			e.sent[m.MessageID] = &flight{row: r, message: m, wire: m.Topic + "/" + m.Key}
		}
	}
	w.mu.Unlock()
	e.Exactly.Send(known, func(results []sink.Result) {
		i.awaitWake()
		if i.step("answer") {
			return
		}
		w.mu.Lock()
		for _, r := range results {
			w.checkAnswer(e.sent[r.Message.MessageID], r)
			w.answered(i, r.Message, r.Outcome)
		}
		w.mu.Unlock()
		done(results)
	})
}

// checkAnswer checks that the sink reports a message as sent if and only if its transaction is committed (I2). Callers hold mu.
func (w *world) checkAnswer(f *flight, r sink.Result) {
	f.told = r.Outcome.Class != outbox.ClassNone && r.Outcome.Class != outbox.ClassUnknown
	switch id := name(f.row.Identity); {
	case r.Outcome.Class == outbox.ClassNone && !f.decided:
		w.violation("exactly once", "%s is reported as sent and its transaction is not committed", id)
	case f.told && f.decided:
		w.violation("exactly once", "%s is reported as not sent and its transaction is committed", id)
	}
}

// Recover implements sink.Prover.
func (e *exactModel) Recover(ctx context.Context, tables []string) ([]outbox.Identity, error) {
	rows, err := e.Exactly.Recover(ctx, tables)
	w := e.s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range rows {
		r := w.byID[id]
		if r == nil || r.committedAs == 0 {
			w.violation("exactly once", "a row is recovered that was never committed: %v", id)
			continue
		}
		e.s.i.read[r] = true
		w.note(e.s.i.life, "recovered", name(id), "", 0)
	}
	return rows, err
}

// Probe implements sink.Sink.
func (e *exactModel) Probe(ctx context.Context) error { return e.s.Probe(ctx) }

// Topics implements sink.Sink.
func (e *exactModel) Topics(ctx context.Context, topics []string) (map[string]error, error) {
	return e.s.Topics(ctx, topics)
}

// cut is the death of the process. Callers hold mu.
func (e *exactModel) cut(d *dice) {
	for _, p := range e.producers {
		p.cut(d)
	}
}

// checkCommitted is called when a message is committed (I1): readers of committed records get it. Callers hold mu.
func (w *world) checkCommitted(p *producer, f *flight) {
	r := f.row
	if f.told {
		w.violation("exactly once", "%s is committed after it was reported as not sent", name(r.Identity))
	}
	if f.message.Path == outbox.PathRedelivery {
		return
	}
	r.committedAs++
	if again := r.committedAs > 1 && !r.touched || r.owed > 0 && r.committedAs > r.owed; again && !w.mayComeAgain(p, r) {
		w.violation("exactly once", "%s is committed %d times", name(r.Identity), r.committedAs)
	}
}

// mayComeAgain names what the documents except: rows of a table without a status whose position was reset or taken over by another directory. Callers
// hold mu.
func (w *world) mayComeAgain(p *producer, r *row) bool {
	return r.logOnly && (r.again || p.e.s.i.team != nil)
}

// slack is how much later a row may be published in transactions: it may wait for some that hold a bad row.
func (p *plan) slack() time.Duration {
	switch {
	case !p.exactly:
		return 0
	case p.bounds.Messages < 1000: // they queue up
		return 3 * time.Second
	}
	return 500 * time.Millisecond
}
