// Package pipeline is the relay's heart: order, concurrency and progress. It owns the registry of rows in the relay's hands,
// the low-water mark over the log, the recovery window, the breaker and the suspended topics. Rows come from the binlog reader
// (Offer) and from the sweep (Publish), go to one sink, and leave as completions for ack.
//
// Guarantee: a row has one owner at a time; the checkpoint never passes a transaction with a row that is neither journalled
// as sent, nor final in MySQL, nor deferred to the sweep; what is in flight is bounded by count and bytes; transactions are
// handed to the sink in commit order.
//
// Goroutines: the one that calls Run (probes, second sends) and one more until Run returns (the recovery window of a log that
// fell silent, whose queries must not hold up a probe). The reader, the sweeps, ack and the sink call in on theirs. Locks:
// order before mu; neither is held while ack or the database is called, but order is held during the recovery check, which
// is what makes later transactions wait for it.
package pipeline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Config bounds the pipeline. The zero value of a field means its default.
type Config struct {
	MaxInFlight      int            // messages without a result, default 10,000
	MaxInFlightBytes int            // their bytes, default 64 MiB
	MaxUnwritten     int            // answered rows whose completion MySQL has not written, default 10,000
	MaxRetry         int            // refusals before FAILED, for rows without a budget of their own
	Backoff          outbox.Backoff // between refusals
	Random           func() float64 // jitter, in [0,1)
	Trigger          func()         // asks for a sweep at once; must not block

	// SweepIn asks for a sweep after a while, for a row that is left to the sweep and becomes due then or later; must not block.
	SweepIn func(time.Duration)
}

const (
	defaultMaxInFlight      = 10_000
	defaultMaxInFlightBytes = 64 << 20
	defaultMaxUnwritten     = 10_000
)

// Acks takes completions on their way to the journal and the table. Add never blocks and keeps the slice.
type Acks interface{ Add([]outbox.Completion) }

// Checker reads the state of rows by primary key; rows that do not exist are missing from the answer.
type Checker interface {
	States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error)
}

// Pipeline implements what the reader, the sweep and ack expect of the flow. Make it with New.
type Pipeline struct {
	cfg      Config
	sink     sink.Sink
	acks     Acks
	checker  Checker
	log      *zap.Logger
	metrics  *metrics
	activity atomic.Uint64 // see ActivityEpoch

	order    turn     // held while a transaction's rows are handed over, so that commit order is kept
	waiting  []*entry // rows of the recovery window that wait for their check, in log order; guarded by order
	waitingB int      // their bytes; guarded by order

	mu             sync.Mutex
	changed        chan struct{} // closed and replaced when a waiter may look again
	waiters        int
	registry       registry
	mark           *mark
	saved          outbox.Position // what Checkpoint returned last
	epoch          uint64          // of the low-water mark: raised by each Move
	offered        outbox.Position
	windowEnd      outbox.Position // of the recovery window
	readerUp       bool
	inFlight       int
	inFlightB      int
	sweepFlight    int
	unwritten      int
	sweepUnwritten int      // of these, rows of the sweep
	heldBack       []*entry // state held, oldest first
	heldB          int      // their bytes
	breaker        breaker
	trouble        string    // why the breaker is not closed, for status
	quietSince     time.Time // since when something is in flight without an answer
	suspended      map[string]*suspendedTopic
	lastOK         map[string]time.Time // topic -> last publish, for telling a poison row from an outage
	wake           chan struct{}        // buffered 1: Run looks at its timers again
}

// New builds a pipeline whose low-water mark starts at a position. It does no I/O.
func New(cfg Config, flavor outbox.Flavor, at outbox.Position, s sink.Sink, acks Acks, checker Checker, log *zap.Logger, reg prometheus.Registerer) (*Pipeline, error) {
	m, err := newMark(flavor, at)
	if err != nil {
		return nil, err
	}
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = defaultMaxInFlight
	}
	if cfg.MaxInFlightBytes <= 0 {
		cfg.MaxInFlightBytes = defaultMaxInFlightBytes
	}
	if cfg.MaxUnwritten <= 0 {
		cfg.MaxUnwritten = defaultMaxUnwritten
	}
	p := &Pipeline{
		cfg: cfg, sink: s, acks: acks, checker: checker, log: log,
		order: make(turn, 1), changed: make(chan struct{}), registry: registry{}, mark: m, offered: at, saved: at,
		suspended: map[string]*suspendedTopic{}, lastOK: map[string]time.Time{}, wake: make(chan struct{}, 1),
	}
	p.metrics = newMetrics(p, reg)
	return p, nil
}

// Own takes over the entries of the journal before the reader starts, and sets their Entry: while they are unwritten nobody else may
// touch them. Written releases them.
func (p *Pipeline) Own(entries []outbox.Completion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range entries {
		e := &entry{id: entries[i].Identity, state: journaled}
		if p.registry.reserve(e.id, e) {
			entries[i].Entry = e
			p.unwritten++
		}
	}
}

// Move sets the low-water mark anew: after a gap, a failover or an operator's checkpoint set. Open transactions are
// forgotten by the mark (their rows go on); the reader must have stopped or be in its Gap call. It returns the epoch that begins:
// what Checkpoint has returned before belongs to an older one.
func (p *Pipeline) Move(flavor outbox.Flavor, at outbox.Position) (epoch uint64, err error) {
	p.order <- struct{}{} // whoever has it there holds it for one query at most
	defer p.order.release()
	p.deferWindow()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.mark.reset(flavor, at); err != nil {
		return 0, err
	}
	p.offered, p.saved = at, at
	p.epoch++
	p.broadcast()
	return p.epoch, nil
}

// turn is a lock whose wait ends with a context: the one who has it may be waiting for the broker.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) release() { <-t }

// broadcast wakes whoever waits for room or progress. Callers hold mu.
func (p *Pipeline) broadcast() {
	if p.waiters > 0 {
		close(p.changed)
		p.changed = make(chan struct{})
		p.waiters = 0
	}
}

// await waits until ok, checked under mu, holds; on success mu is held.
func (p *Pipeline) await(ctx context.Context, ok func() bool) error {
	p.mu.Lock()
	for !ok() {
		p.waiters++
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
		p.mu.Lock()
	}
	return nil
}

// room reports whether one more message may go to the sink. Held messages count, because they go there again. Something
// always may when nothing is in hand, so that a message above every limit still moves. Callers hold mu.
func (p *Pipeline) room() bool {
	hand := p.inFlight + len(p.heldBack)
	return p.breaker.state == breakerClosed && p.unwritten < p.cfg.MaxUnwritten &&
		(hand == 0 || hand < p.cfg.MaxInFlight && p.inFlightB+p.heldB < p.cfg.MaxInFlightBytes)
}

func (p *Pipeline) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Drain waits until nothing is in the sink's hands or waiting for a second send, or the context ends. It returns how many
// messages were left: they are published again after the next start.
func (p *Pipeline) Drain(ctx context.Context) int {
	if err := p.await(ctx, func() bool { return p.inFlight == 0 && len(p.heldBack) == 0 }); err != nil {
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	return p.inFlight + len(p.heldBack)
}
