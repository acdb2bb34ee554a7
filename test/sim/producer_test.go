package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/sink/kafka"
)

// This file is the client library of a process that sends in transactions: it repeats what got no answer. Requests of a dead or fenced process may come
// late.

// producer is the client library with one epoch.
type producer struct {
	c         coordinator
	e         *exactModel
	id, epoch int
	dice      *dice
	breaks    int // of the cluster, when it was made

	// Guarded by world.mu.
	used   bool // the transaction has messages
	flying []*sending
}

// sending is a record that has no answer.
type sending struct {
	p        *producer
	f        *flight // nil: the entry
	record   *kgo.Record
	answered func(*kgo.Record, error)
	unsent   bool // it has not left the process
	gone     bool // it never arrives: the process died with it
	over     bool // its fate is decided: it is stored, refused or given up
}

// BeginTransaction implements kafka.Producer.
func (p *producer) BeginTransaction() error {
	p.e.s.i.w.mu.Lock()
	defer p.e.s.i.w.mu.Unlock()
	p.used = false
	return nil
}

// TryProduce implements kafka.Producer.
func (p *producer) TryProduce(_ context.Context, r *kgo.Record, answered func(*kgo.Record, error)) {
	w := p.e.s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &sending{p: p, record: r, answered: answered}
	p.flying = append(p.flying, s)
	p.used = true
	if r.Topic != stateTopic {
		r.Partition = 0
		s.f = p.e.sent[messageID(r)]
		s.f.decided = false
	}
	if s.unsent = p.e.s.i.team != nil; s.unsent {
		time.AfterFunc(p.dice.between(0, time.Millisecond), s.leave)
		return
	}
	s.travel(p.dice.between(100*time.Microsecond, 3*time.Millisecond))
}

// leave lets a record, and those before it, leave the process if that may send: the sink asks at the socket.
func (s *sending) leave() {
	i := s.p.e.s.i
	i.awaitWake()
	w := i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	may := s.p.e.s.may()
	for _, o := range s.p.flying {
		switch {
		case i.dead || !s.unsent || s.over || s.gone:
			return
		case !o.unsent || o.over || o.gone || o.wire() != s.wire():
		case !may: // the library connects again, and sends again
			time.AfterFunc(s.p.dice.between(5*time.Millisecond, 60*time.Millisecond), s.leave)
			return
		default:
			if o.unsent = false; o.f != nil {
				w.checkFence(i, o.f)
			}
			o.travel(s.p.dice.between(100*time.Microsecond, 3*time.Millisecond))
		}
	}
}

// follows reports whether a record before it, to the same partition, has not arrived: a broker takes them in their order (KIP-98, sequence numbers).
func (s *sending) follows() bool {
	for _, o := range s.p.flying {
		if o == s {
			return false
		}
		if !o.over && !o.gone && o.wire() == s.wire() {
			return true
		}
	}
	return false
}

func messageID(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == kafka.HeaderMessageID {
			return string(h.Value)
		}
	}
	return ""
}

// wire is the partition, as the key sees it.
func (s *sending) wire() string {
	if s.f == nil {
		return stateTopic
	}
	return s.f.wire
}

// travel takes a record to its partition. Callers hold mu.
func (s *sending) travel(within time.Duration) {
	w := s.p.e.s.i.w
	wire := s.p.e.s.i.connection(s.wire())
	l := w.wires[wire]
	if l == nil {
		l = &connection{}
		w.wires[wire] = l
	}
	l.last = max(w.at()+within, l.last+time.Duration(1+s.p.dice.n(1000)))
	time.AfterFunc(l.last-w.at(), s.arrive)
}

// arrive is called when a partition decides. What it does not take for now is sent again by the library, in the same order.
func (s *sending) arrive() {
	i := s.p.e.s.i
	w := i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.gone || s.over && !s.p.dice.chance(0.3) { // a closed client's record may be on the wire
		return
	}
	again := func() {
		if !s.over {
			s.travel(s.p.dice.between(5*time.Millisecond, 60*time.Millisecond))
		}
	}
	if _, down := i.brokerDown(); down || !s.over && s.follows() {
		again()
		return
	}
	id := &w.cluster.ids[s.p.id]
	_, away := covering(w.plan.partition, w.at())
	_, missing := covering(w.plan.topic, w.at())
	switch {
	case away && s.f != nil && hash(s.f.wire)%3 == 0:
		again()
	case missing && s.f != nil && s.f.row.topic == topicB:
		s.answer(kerr.UnknownTopicOrPartition)
	case id.epoch != s.p.epoch:
		s.answer(kerr.InvalidProducerEpoch)
	case id.open != nil && id.open.ending: // CONCURRENT_TRANSACTIONS
		again()
	case w.at() < w.plan.healed && s.p.dice.chance(w.plan.swallowed/20):
		s.answer(pick(s.p.dice, kerr.OutOfOrderSequenceNumber, kerr.TransactionAbortable, kerr.InvalidTxnState, kerr.NetworkException))
	case s.f != nil && s.f.row.poison:
		s.refuse(kerr.MessageTooLarge)
	case s.f != nil && s.f.row.refused < s.f.row.refusals:
		s.refuse(kerr.CorruptMessage)
	default:
		w.add(s)
	}
}

// refuse refuses the whole batch of a record: some of those that are on the wire to the partition.
func (s *sending) refuse(err error) {
	for _, o := range s.p.flying {
		if o != s && o.f != nil && o.wire() == s.wire() && s.p.dice.chance(0.5) {
			o.gone = true
			o.answer(err)
		}
	}
	s.answer(err)
}

// answer answers a record. Callers hold mu.
func (s *sending) answer(err error) {
	if !s.over {
		s.over = true
		time.AfterFunc(s.p.dice.between(10*time.Microsecond, time.Millisecond), func() { s.finish(err) })
	}
}

// finish calls the promise.
func (s *sending) finish(err error) {
	w := s.p.e.s.i.w
	w.mu.Lock()
	at := slices.Index(s.p.flying, s)
	if at >= 0 {
		s.p.flying = slices.Delete(s.p.flying, at, at+1)
	}
	w.mu.Unlock()
	if at >= 0 {
		s.answered(s.record, err)
	}
}

// EndTransaction implements kafka.Producer.
func (p *producer) EndTransaction(ctx context.Context, commit kgo.TransactionEndTry) error {
	w := p.e.s.i.w
	w.mu.Lock()
	used := p.used
	w.mu.Unlock()
	if !used {
		return nil
	}
	d, err := p.c.way(ctx, "end")
	if err != nil {
		p.onTheWire(bool(commit), err)
		return err
	}
	if w.at() < w.plan.healed && d.chance(w.plan.swallowed) {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := w.decide(p, bool(commit), d); err != nil {
		return err
	}
	came, err := p.c.back(ctx, "end", d)
	switch {
	case err != nil || came:
		return err
	case d.chance(0.5): // it was asked again
		return kerr.InvalidProducerEpoch
	}
	<-ctx.Done()
	return ctx.Err()
}

// Failed implements kafka.Producer.
func (p *producer) Failed() bool {
	w := p.e.s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cluster.breaks > p.breaks
}

// onTheWire lets a request arrive late that its process no longer waits for, or that died with it.
func (p *producer) onTheWire(commit bool, err error) {
	w := p.e.s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.dice("late end", uint64(p.epoch))
	if sent := errors.Is(err, errDead) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled); sent && d.chance(0.5) {
		end := sync.OnceFunc(func() { _ = w.decide(p, commit, d) })
		w.cluster.late = append(w.cluster.late, end)
		time.AfterFunc(d.between(0, 2*time.Second), end)
	}
}

// overtaken lets late requests arrive right before the one of another process: the worst moments are hit more often than by chance.
func (c coordinator) overtaken(d *dice) {
	w := c.e.s.i.w
	w.mu.Lock()
	late := w.cluster.late
	w.mu.Unlock()
	for _, end := range late {
		if d.chance(0.3) {
			end()
		}
	}
}

// Close implements kafka.Producer.
func (p *producer) Close() {
	w := p.e.s.i.w
	w.mu.Lock()
	list := p.flying
	p.flying = nil
	for _, s := range list {
		s.over = true
	}
	w.mu.Unlock()
	for _, s := range list {
		s.answered(s.record, kgo.ErrClientClosed)
	}
}

// cut is the death of the process: of each partition some records are on the wire and arrive, those behind do not. Callers hold mu.
func (p *producer) cut(d *dice) {
	dropped := map[string]bool{}
	for _, s := range p.flying {
		if wire := s.wire(); dropped[wire] || d.chance(0.4) {
			dropped[wire], s.gone = true, true
		}
	}
}
