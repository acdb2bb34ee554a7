// Package dispatch brings rows to the sink and decides what becomes of them: the window of messages in flight and the retry buffer (flight), the
// breaker and the suspended topics (broker), the order of keys (ordered). Dispatch puts these parts together.
//
// Guarantee: what is in flight or waits for a second send is bounded by count and bytes, and the sweep leaves half of it to fresh rows;
// rows are handed to the sink in the order in which they come; an outage costs no row an attempt; each row that was taken over
// comes to one completion for ack, or is left to the sweep.
//
// Run is its one goroutine (probes, second sends). Reader, sweep and sink call in on theirs. One mutex guards everything; the
// tracker's is taken inside it, and neither is held while the sink or ack is called.
package dispatch

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/keyorder"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Config bounds the rows in memory. The zero value of a field means its default.
type Config struct {
	MaxInFlight      int            // messages without a result, default 10,000
	MaxInFlightBytes int            // their bytes, default 64 MiB
	MaxUnwritten     int            // answered rows whose completion MySQL has not written, default 10,000
	MaxLeft          int            // of further ones, whose completion waits in the journal alone, default 1,000,000
	MaxRetry         int            // retries before FAILED, for rows without a limit of their own
	Backoff          outbox.Backoff // between refusals
	// What is different for the rows of a table (schema.table), before that for a topic, and before that for a business type; what is not
	// set is as above.
	Tables, Topics, Types map[string]outbox.Retry
	Random                func() float64 // jitter, in [0,1)
	// LongestDelay is the longest delay that rows of the log are handed to the broker with; 0: rows that are due later wait here.
	LongestDelay time.Duration
	Ordered      []string // tables (schema.table) that keep the order of their keys
	Several      bool     // there are several tables, so that none may keep the others waiting
	MaxWaiting   int      // rows that are remembered because they, or earlier ones of their keys, are not final; default 100,000
	// May is sink.Limits.May: while it is false the sweep takes nothing, so that no row is claimed by a relay that may not send it; nil: always.
	May func() bool
}

const (
	defaultMaxInFlight      = 10_000
	defaultMaxInFlightBytes = 64 << 20
	defaultMaxUnwritten     = 10_000
	defaultMaxLeft          = 1_000_000
	defaultMaxWaiting       = 100_000
)

// Acks takes completions for the journal and the table. Its methods do not block.
type Acks interface {
	// Add does not keep the slice.
	Add([]outbox.Completion)
	// Stuck returns the tables whose statuses cannot be written for some time and of which at least a number of rows is in memory, or another number in the
	// journal alone, and how many rows these are. The tracker's waiters are woken when that may have changed.
	Stuck(fromRows, fromLeft int) (tables map[string]bool, rows, left int)
}

// stuckShare of the rows that may wait for their statuses, of one table, are many if these cannot be written.
const stuckShare = 4

// Dispatch is the way to the sink. Make it with New.
type Dispatch struct {
	*core
	*broker
	*ordered
	*flight
	attempts attempts
	metrics  *metrics

	stopped      bool // a stop has given back what is not the sink's, see Drain
	delayRefused bool // it was logged
}

// New makes a Dispatch. It does no I/O.
func New(cfg Config, t *tracker.Tracker, sweeps tracker.Sweeps, s sink.Sink, acks Acks, rows Rows, log *zap.Logger, reg prometheus.Registerer) *Dispatch {
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = defaultMaxInFlight
	}
	if cfg.MaxInFlightBytes <= 0 {
		cfg.MaxInFlightBytes = defaultMaxInFlightBytes
	}
	if cfg.MaxUnwritten <= 0 {
		cfg.MaxUnwritten = defaultMaxUnwritten
	}
	if cfg.MaxLeft <= 0 {
		cfg.MaxLeft = defaultMaxLeft
	}
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = defaultMaxWaiting
	}
	c := &core{
		cfg: cfg, tracker: t, sweeps: sweeps, sink: s, acks: acks, log: log, wake: make(chan struct{}, 1), orderWake: make(chan struct{}, 1),
		changed: make(chan struct{}), order: newOrder(&cfg),
	}
	b := &broker{core: c, topics: topics{}, lastOK: map[string]time.Time{}}
	d := &Dispatch{core: c, broker: b, ordered: &ordered{c, b, rows, map[string]question{}}, flight: &flight{core: c, broker: b}, attempts: attempts{cfg: &c.cfg, random: c.Random}}
	c.answers = d.results
	d.metrics = newMetrics(d, reg)
	return d
}

// TryPublish is Publish without the wait.
func (d *Dispatch) TryPublish(rows []*tracker.Entry) (taken int) {
	d.mu.Lock()
	d.askStuck()
	if !d.room(outbox.PathBinlog) {
		d.mu.Unlock()
		return 0
	}
	return d.take(rows, outbox.PathBinlog)
}

// Publish hands rows, all of one path, to the sink, in their order. It waits for room for the first and then takes as many as there is
// room for; rows of a suspended topic are left to the sweep. It returns how many it took; the others are still the caller's. The error
// is that of ctx, and then it took none.
func (d *Dispatch) Publish(ctx context.Context, rows []*tracker.Entry) (taken int, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	path := rows[0].Message.Path
	d.mu.Lock()
	for d.askStuck(); !d.room(path); d.askStuck() {
		d.waiters++
		changed := d.changed
		d.mu.Unlock()
		written := d.tracker.Changed()
		d.mu.Lock()
		if d.room(path) { // once more, now that no change can be missed
			break
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-changed:
		case <-written:
		}
		d.mu.Lock()
	}
	return d.take(rows, path), nil
}

// take hands rows on as long as there is room. Callers hold mu, which is released.
func (d *Dispatch) take(rows []*tracker.Entry, path outbox.Path) (taken int) {
	defer d.handOn()
	d.ready = make([]*outbox.Message, 0, min(len(rows), max(1, d.cfg.MaxInFlight-d.inMemory().Rows)))
	now := time.Now()
	for _, e := range rows {
		if taken > 0 && !d.room(path) {
			break
		}
		taken++
		if e.LogOnly {
			d.sequence++
			e.Sends.Sequence = d.sequence
		}
		m := e.Message
		switch suspended := d.topics.has(m.Topic); {
		case m.Fault != "": // it can never be a message
			c := outbox.Completion{Identity: m.Identity, Topic: m.Topic, Class: outbox.ClassPermanent, Reason: m.Fault, Since: m.Since}
			d.fail(&c, m)
			d.complete(e, c)
		case suspended && e.LogOnly:
			d.hold(e, now)
		case suspended:
			d.skip(e, outbox.CauseTopic, now)
		case d.stuck.tables[m.Table] && path == outbox.PathBinlog && !e.LogOnly:
			d.skip(e, outbox.CauseTable, now)
		default:
			switch d.order.Come(e, now) {
			case keyorder.Send:
				d.launch(e, now)
			case keyorder.Leave: // an earlier row of its key is not final
				d.leave(outbox.CauseOrder, e)
			}
		}
	}
	return taken
}

// skip leaves a fresh row to the sweep. Callers hold mu.
func (d *Dispatch) skip(e *tracker.Entry, cause outbox.Cause, now time.Time) {
	d.order.Skip(e, causeText(cause), now)
	d.leave(cause, e)
}

// Reject passes a completion on of a row that the sweep has claimed and that cannot become a message.
func (d *Dispatch) Reject(c outbox.Completion) {
	e := tracker.Of(c.Entry)
	if e == nil {
		d.tracker.Bug("a row is rejected that was not reserved", zap.String("table", c.Table), zap.String("id", c.ID))
		return
	}
	d.mu.Lock()
	defer d.handOn()
	d.fail(&c, &outbox.Message{Identity: c.Identity, MaxRetry: -1})
	d.complete(e, c)
}

// Return gives back rows that were reserved and claimed under a token, and not taken over: their claims are released.
func (d *Dispatch) Return(rows []outbox.Candidate, claim string) {
	d.mu.Lock()
	defer d.handOn()
	for i := range rows {
		if e := tracker.Of(rows[i].Entry); e != nil {
			d.complete(e, outbox.Completion{Identity: rows[i].Identity, Action: outbox.ActionRelease, RetryCount: rows[i].RetryCount, Claim: claim})
		}
	}
}
