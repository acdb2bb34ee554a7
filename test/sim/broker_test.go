package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// broker keeps what was published.
type broker struct {
	records []record
	wires   map[string]*connection
	cluster cluster
}

// record is one stored copy.
type record struct {
	row    *row
	path   outbox.Path
	at     time.Duration
	life   int
	body   []byte
	queued time.Duration // consumers get it from then on
	told   bool          // its process was told that it may have failed
}

// connection leads to one partition, as one key sees it: what arrives is stored in the order of the sends.
type connection struct{ last time.Duration }

// sinkModel is sink.Sink for one process.
type sinkModel struct {
	i      *incarnation
	closed bool
	flying []*flight // in the order of the sends
	may    func() bool
	exact  *exactModel // nil: it does not send in transactions
}

// flight is one message that is being sent.
type flight struct {
	batch   *batch
	row     *row
	message *outbox.Message
	dice    *dice
	wire    string // of the broker.wires
	stored  bool
	record  int  // of the broker, when it is stored
	unsent  bool // it has not left the process
	decided bool // its transaction is committed
	lost    bool // never arrives: the process died with it
	told    bool // it has its result
}

// batch collects the results of one Send, so that some come together.
type batch struct {
	done  func([]sink.Result)
	ready []sink.Result
	timed bool
}

func newSink(i *incarnation) *sinkModel { return &sinkModel{i: i} }

// Send implements sink.Sink.
func (s *sinkModel) Send(list []*outbox.Message, done func([]sink.Result)) {
	if s.i.step("send") {
		return
	}
	w := s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &batch{done: done}
	for _, m := range list {
		r := w.handedOver(s.i, m)
		if r == nil {
			continue
		}
		f := &flight{batch: b, row: r, message: m, dice: newDice(w.seed, "broker", hash(m.MessageID), r.attempts), wire: m.Topic + "/" + m.Key}
		if m.Key == "" {
			f.wire += m.MessageID
		}
		s.flying = append(s.flying, f)
		if s.closed {
			s.answer(f, outcome(outbox.ClassOutage, "closed"), 0)
			continue
		}
		if s.i.team != nil {
			f.unsent = true
			time.AfterFunc(f.dice.between(0, time.Millisecond), func() { s.write(f) })
			continue
		}
		s.travel(f)
	}
}

// write lets a message, and those before it, leave the process if that may send: the sinks ask as late as they can.
func (s *sinkModel) write(f *flight) {
	s.i.awaitWake()
	w := s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range s.flying {
		if s.i.dead || !f.unsent || f.lost {
			return
		}
		if g.wire != f.wire || !g.unsent || g.lost {
			continue
		}
		if g.unsent = false; s.may() {
			w.checkFence(s.i, g)
			s.travel(g)
		} else {
			s.answer(g, outcome(outbox.ClassOutage, sink.ErrMayNot.Error()), time.Millisecond)
		}
	}
}

// travel takes a message to the broker. Callers hold mu.
func (s *sinkModel) travel(f *flight) {
	w := s.i.w
	at := w.at() + f.dice.between(100*time.Microsecond, 3*time.Millisecond)
	wire := s.i.connection(f.wire)
	l := w.wires[wire]
	if l == nil {
		l = &connection{}
		w.wires[wire] = l
	}
	l.last = max(at, l.last+time.Duration(1+f.dice.n(1000)))
	time.AfterFunc(l.last-w.at(), func() { s.arrive(f) })
}

// arrive is called when the broker has the message and decides.
func (s *sinkModel) arrive(f *flight) {
	w := s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.lost {
		return
	}
	at := w.at()
	if b, down := s.i.brokerDown(); down {
		if b.silent { // stopped: it continues where it was, in the same order
			l := w.wires[s.i.connection(f.wire)]
			l.last = max(l.last, b.to) + time.Duration(1+f.dice.n(1000))
			time.AfterFunc(l.last-at, func() { s.arrive(f) })
			return
		}
		s.answer(f, outcome(outbox.ClassOutage, "connection refused"), time.Millisecond)
		return
	}
	healed := at >= w.plan.healed
	if p, down := covering(w.plan.partition, at); down && hash(f.wire)%3 == 0 {
		o := outcome(outbox.ClassOutage, "no leader")
		if !p.silent {
			o.Scope = outbox.ScopePartition
		}
		s.answer(f, o, time.Millisecond)
		return
	}
	if _, gone := covering(w.plan.topic, at); gone && f.row.topic == topicB {
		s.answer(f, outcome(outbox.ClassTopic, "unknown topic"), time.Millisecond)
		return
	}
	switch {
	case f.row.poison:
		s.answer(f, outcome(outbox.ClassPermanent, "too large"), time.Millisecond)
	case f.row.refused < f.row.refusals:
		s.answer(f, outcome(outbox.ClassRefused, "not this one"), time.Millisecond)
	case !healed && f.dice.chance(w.plan.swallowed):
		s.answer(f, f.silence(), 900*time.Millisecond)
	case !healed && f.dice.chance(w.plan.lost):
		w.store(s.i, f)
		s.answer(f, f.silence(), 900*time.Millisecond)
	default:
		w.store(s.i, f)
		s.answer(f, outbox.Outcome{BrokerID: "b" + f.row.MessageID}, 2*time.Millisecond)
	}
}

func outcome(class outbox.Class, reason string) outbox.Outcome {
	return outbox.Outcome{Class: class, Scope: class.Scope(), Reason: reason}
}

// silence is the outcome of a message without an answer: the broker's silence, that of a part of it, or the message's own.
func (f *flight) silence() outbox.Outcome {
	o := outcome(outbox.ClassUnknown, "time-out")
	o.Scope = pick(f.dice, outbox.ScopeCluster, outbox.ScopeCluster, outbox.ScopePartition, outbox.ScopeMessage)
	return o
}

// store keeps a copy. Callers hold mu.
func (w *world) store(i *incarnation, f *flight) {
	f.stored = true
	if f.message.Path != outbox.PathRedelivery {
		f.row.records++
	}
	w.arrived(f.row)
	f.record = len(w.records)
	queued := w.at()
	if d := w.dice("queued", hash(f.row.MessageID)); d.chance(0.05) {
		queued += d.between(0, 10*still)
	}
	w.records = append(w.records, record{row: f.row, path: f.message.Path, at: w.at(), queued: queued, life: i.life, body: f.message.Body})
	w.note(i.life, "stored", name(f.row.Identity), f.row.key, f.row.records)
}

// answer delivers a result, within the given time. Callers hold mu.
func (s *sinkModel) answer(f *flight, o outbox.Outcome, within time.Duration) {
	low := within / 10
	if within > 500*time.Millisecond {
		low = within / 3
	}
	time.AfterFunc(f.dice.between(low, within), func() { s.deliver(f, o) })
}

// deliver passes a result to the process, perhaps together with others of its batch a little later.
func (s *sinkModel) deliver(f *flight, o outbox.Outcome) {
	w := s.i.w
	w.mu.Lock()
	if f.told || s.i.dead {
		w.mu.Unlock()
		return
	}
	f.told = true
	if f.stored && o.Class != outbox.ClassNone {
		w.records[f.record].told = true
	}
	b := f.batch
	b.ready = append(b.ready, sink.Result{Message: f.message, Outcome: o})
	wait := f.dice.between(0, 400*time.Microsecond)
	timed := b.timed
	b.timed = true
	w.mu.Unlock()
	if !timed {
		time.AfterFunc(wait, func() { s.flush(b, f.dice) })
	}
}

func (s *sinkModel) flush(b *batch, d *dice) {
	s.i.awaitWake()
	if s.i.step("answer") {
		return
	}
	w := s.i.w
	w.mu.Lock()
	list := b.ready
	b.ready, b.timed = nil, false
	d.rand().Shuffle(len(list), func(x, y int) { list[x], list[y] = list[y], list[x] })
	for _, r := range list {
		w.answered(s.i, r.Message, r.Outcome)
	}
	s.flying = slices.DeleteFunc(s.flying, func(f *flight) bool {
		return f.told && slices.ContainsFunc(list, func(r sink.Result) bool { return r.Message == f.message })
	})
	w.mu.Unlock()
	b.done(list)
}

// cut is the death of the process: of each connection some messages are on the wire and arrive, those behind do not. Callers
// hold mu.
func (s *sinkModel) cut(d *dice) {
	if s.exact != nil {
		s.exact.cut(d)
	}
	dropped := map[string]bool{}
	for _, f := range s.flying {
		if f.unsent || !f.stored && (dropped[f.wire] || d.chance(0.4)) {
			dropped[f.wire], f.lost = true, true
		}
	}
}

// Probe implements sink.Sink.
func (s *sinkModel) Probe(ctx context.Context) error { return s.probe(ctx, "probe", uint64(s.i.life)) }

// Reachable implements sink.CommittedReader.
func (s *sinkModel) Reachable(ctx context.Context) error {
	return s.probe(ctx, "reach", uint64(s.i.life))
}

func (s *sinkModel) probe(ctx context.Context, actor string, key uint64) error {
	w := s.i.w
	s.i.awaitWake()
	w.mu.Lock()
	d := w.dice(actor, key)
	down, isDown := s.i.brokerDown()
	w.mu.Unlock()
	switch {
	case isDown && down.silent:
		return sleep(ctx, time.Until(w.began.Add(down.to))+d.between(0, time.Millisecond))
	case isDown:
		return errors.Join(sleep(ctx, d.between(0, time.Millisecond)), errDown)
	}
	return sleep(ctx, d.between(0, 2*time.Millisecond))
}

// Topics implements sink.Sink.
func (s *sinkModel) Topics(ctx context.Context, topics []string) (map[string]error, error) {
	if err := s.Probe(ctx); err != nil {
		return nil, err
	}
	w := s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	faults := map[string]error{}
	if _, gone := covering(w.plan.topic, w.at()); gone && slices.Contains(topics, topicB) {
		faults[topicB] = errors.New("unknown topic")
	}
	return faults, nil
}

// Close implements sink.Sink.
func (s *sinkModel) Close(ctx context.Context) error {
	w := s.i.w
	w.mu.Lock()
	s.closed = true
	w.mu.Unlock()
	for {
		w.mu.Lock()
		left := len(s.flying)
		dead := s.i.dead
		w.mu.Unlock()
		if left == 0 || dead {
			return nil
		}
		if err := sleep(ctx, 5*time.Millisecond+time.Duration(left)); err != nil {
			break
		}
	}
	s.giveUp()
	return ctx.Err()
}

// giveUp answers what is left; it may still arrive.
func (s *sinkModel) giveUp() {
	w := s.i.w
	w.mu.Lock()
	var list []*flight
	for _, f := range s.flying {
		if !f.told {
			f.told, f.lost = true, f.unsent
			list = append(list, f)
			w.answered(s.i, f.message, outcome(outbox.ClassUnknown, "closed"))
		}
	}
	w.mu.Unlock()
	for _, f := range list {
		f.batch.done([]sink.Result{{Message: f.message, Outcome: outcome(outbox.ClassUnknown, "closed")}})
	}
}
