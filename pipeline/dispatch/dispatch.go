// Package dispatch brings rows to the sink and decides what becomes of them: the window of messages in flight, the retry buffer, the
// breaker, the suspended topics.
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
	"sync"
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
	MaxRetry         int            // retries before FAILED, for rows without a limit of their own
	Backoff          outbox.Backoff // between refusals
	// What is different for the rows of a table (schema.table), before that for a topic, and before that for a business type; what is not
	// set is as above.
	Tables, Topics, Types map[string]outbox.Retry
	Random                func() float64 // jitter, in [0,1)
	// LongestDelay is the longest delay that rows of the log are handed to the broker with; 0: rows that are due later wait here.
	LongestDelay time.Duration
	Ordered      []string // tables (schema.table) that keep the order of their keys
	MaxWaiting   int      // rows that are remembered because they, or earlier ones of their keys, are not final; default 100,000
	// May is sink.Limits.May: while it is false the sweep takes nothing, so that no row is claimed by who cannot send it; nil: always.
	May func() bool
}

const (
	defaultMaxInFlight      = 10_000
	defaultMaxInFlightBytes = 64 << 20
	defaultMaxUnwritten     = 10_000
	defaultMaxWaiting       = 100_000
)

// Acks takes completions on their way to the journal and the table. Add never blocks and does not keep the slice.
type Acks interface{ Add([]outbox.Completion) }

// Dispatch is the way to the sink. Make it with New.
type Dispatch struct {
	cfg       Config
	tracker   *tracker.Tracker
	sweeps    tracker.Sweeps
	sink      sink.Sink
	acks      Acks
	rows      Rows
	log       *zap.Logger
	metrics   *metrics
	wake      chan struct{} // buffered 1: Run looks at its timers again
	orderWake chan struct{} // buffered 1: keepOrder has something to do

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced when goroutines wait for room
	waiters     int
	inFlight    int
	inFlightB   int
	sweptFlight int              // of the messages in flight, those that the sweep found
	stopped     bool             // a stop has given back what is not the sink's, see drain.go
	retry       []*tracker.Entry // the retry buffer: to be sent again, oldest first
	retryB      int              // their bytes
	held        []*tracker.Entry // rows that no sweep would find, see held.go
	heldB       int              // their bytes
	sequence    uint64           // of the row of such a table that came last
	order       *keyorder.Order  // of the tables that keep the order of their keys, see ordered.go
	out         handover
	scouts      []*tracker.Entry // rows of parts that are away, see scouts.go
	scoutsOut   int              // scouts in the sink's hands
	breaker     breaker
	reported    reported  // rows that cannot be FAILED and were reported
	trouble     string    // why the breaker is not closed, for status
	quietSince  time.Time // since when something is in flight without a result

	unansweredSince time.Time // since when there are rows in memory and the broker has answered no message
	delayRefused    bool      // it was logged
	suspended       map[string]*suspendedTopic
	lastOK          map[string]time.Time // topic -> last publish, for telling one broker's outage from all of them
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
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = defaultMaxWaiting
	}
	d := &Dispatch{
		cfg: cfg, tracker: t, sweeps: sweeps, sink: s, acks: acks, rows: rows, log: log, wake: make(chan struct{}, 1), changed: make(chan struct{}),
		suspended: map[string]*suspendedTopic{}, lastOK: map[string]time.Time{}, order: newOrder(&cfg), orderWake: make(chan struct{}, 1),
	}
	d.metrics = newMetrics(d, reg)
	return d
}

// quarters of what may be in flight, and of what may wait for its status, that rows which the log did not bring may take together: a
// backlog in the table leaves room to rows that become due now, and both leave room to fresh ones, so that these keep their latency.
var quarters = [...]int{outbox.PathBinlog: 4, outbox.PathTimer: 3, outbox.PathSweep: 2, outbox.PathRedelivery: 1}

// TryPublish is Publish without the wait.
func (d *Dispatch) TryPublish(rows []*tracker.Entry) (taken int) {
	d.mu.Lock()
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
	for !d.room(path) {
		d.waiters++
		changed := d.changed
		d.mu.Unlock()
		written := d.tracker.Changed()
		d.mu.Lock()
		ok := d.room(path) // once more, now that no change can be missed
		if ok {
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
	ready := make([]*outbox.Message, 0, min(len(rows), max(1, d.cfg.MaxInFlight-d.inFlight-len(d.retry)-len(d.held)-d.order.Behind().Rows)))
	var released []outbox.Completion
	now := time.Now()
	for _, e := range rows {
		if taken > 0 && !d.room(path) {
			break
		}
		taken++
		if e.LogOnly {
			d.sequence++
			e.Sends.Order = d.sequence
		}
		switch suspended := d.topicSuspended(e.Message.Topic); {
		case e.Message.Fault != "":
			released = append(released, d.refuseFaulty(e))
			continue
		case suspended && e.LogOnly:
			d.hold(e, now)
			continue
		case suspended:
			d.order.Skip(e, causeText(outbox.CauseTopic), now)
			d.leaveToSweep(outbox.CauseTopic, e)
			continue
		}
		if d.pass(e, now) {
			ready = append(ready, d.launch(e, now))
		}
	}
	ready, released = d.out.take(ready, released)
	d.unlock()
	d.send(ready)
	if len(released) > 0 {
		d.acks.Add(released)
	}
	return taken
}

// room reports whether one more message may go to the sink. The retry buffer counts, because its messages go there again. With
// no row in memory there is always room, so that a message above every limit is still sent. Callers hold mu.
func (d *Dispatch) room(path outbox.Path) bool {
	unwritten, sweptUnwritten := d.tracker.Unwritten()
	behind := d.order.Behind()
	hand, swept := d.inFlight+len(d.retry)+len(d.held)+behind.Rows, d.sweptFlight+behind.Swept
	if !d.takes() || unwritten >= d.cfg.MaxUnwritten || d.tracker.Failing() >= d.cfg.MaxInFlightBytes ||
		hand > 0 && (hand >= d.cfg.MaxInFlight || d.inFlightB+d.retryB+d.heldB+behind.Bytes >= d.cfg.MaxInFlightBytes) {
		return false
	}
	share := quarters[path]
	return path == outbox.PathBinlog || (swept == 0 || swept < d.cfg.MaxInFlight*share/4) &&
		(swept+sweptUnwritten == 0 || swept+sweptUnwritten < d.cfg.MaxUnwritten*share/4)
}

// takes reports whether the breaker lets a fresh message pass: when it is closed, and as the trial of a half-open one when the retry
// buffer has none or it is its turn. Callers hold mu.
func (d *Dispatch) takes() bool {
	now := time.Now()
	return d.breaker.state == breakerClosed || d.breaker.mayTry(now) && (len(d.retry) == 0 || d.breaker.freshFirst(now))
}

// Room reports whether a fresh row would be taken at once.
func (d *Dispatch) Room() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.room(outbox.PathBinlog)
}

// Changed returns a channel that is closed when Room or Closed may have changed, as far as the sink is the reason.
func (d *Dispatch) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiters++
	return d.changed
}

// May reports whether this relay may publish.
func (d *Dispatch) May() bool { return d.cfg.May == nil || d.cfg.May() }

// Closed reports whether the broker takes messages: the breaker is closed.
func (d *Dispatch) Closed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.breaker.state == breakerClosed
}

// launch counts a row as being in the sink's hands and returns its message, which the caller sends afterwards. Callers hold mu.
func (d *Dispatch) launch(e *tracker.Entry, now time.Time) *outbox.Message {
	if e.Sends.Count == 0 {
		e.Sends.First = now
	}
	e.Sends.InFlight = true
	e.Sends.Count++
	if d.inFlight == 0 {
		d.quietSince = now
		if len(d.retry) == 0 {
			d.unansweredSince = now
		}
	}
	d.breaker.launched(now, e.Sends.Count > 1)
	d.inFlight++
	d.inFlightB += e.Size
	if e.Swept() {
		d.sweptFlight++
	}
	return e.Message
}

// land takes a row out of the sink's hands. Callers hold mu.
func (d *Dispatch) land(e *tracker.Entry) {
	e.Sends.InFlight = false
	d.inFlight--
	d.inFlightB -= e.Size
	if e.Swept() {
		d.sweptFlight--
	}
}

func (d *Dispatch) send(batch []*outbox.Message) {
	if len(batch) > 0 {
		d.sink.Send(batch, d.results)
	}
}

// Reject passes a completion on of a row that the sweep has claimed and that cannot become a message.
func (d *Dispatch) Reject(c outbox.Completion) {
	e := tracker.Of(c.Entry)
	if e == nil {
		d.tracker.Bug("a row is rejected that was not reserved", zap.String("table", c.Table), zap.String("id", c.ID))
		return
	}
	d.tracker.Complete(e)
	d.fail(&c, &outbox.Message{Identity: c.Identity, MaxRetry: -1})
	d.acks.Add([]outbox.Completion{c})
}

// deferRow leaves a row to the sweep, and those behind it. A claim of ours is given back by the completion that is returned, which keeps the row
// owned until the table has it. Callers hold mu and hand the completion to ack.
func (d *Dispatch) deferRow(e *tracker.Entry, cause outbox.Cause, now time.Time) (outbox.Completion, bool) {
	var writes *tracker.Entry
	if e.Message.Claim != "" {
		writes = e
	}
	d.keyWaits(e, writes, causeText(cause), now)
	return d.release(e, cause)
}

// release is deferRow for a row that the order of its key knows of already. Callers hold mu.
func (d *Dispatch) release(e *tracker.Entry, cause outbox.Cause) (outbox.Completion, bool) {
	m := e.Message
	if m.Claim == "" {
		d.tracker.Drop(e, cause)
		return outbox.Completion{}, false
	}
	d.tracker.Defer(cause, 1)
	d.tracker.Complete(e)
	return outbox.Completion{Identity: m.Identity, Action: outbox.ActionRelease, RetryCount: e.RetryCount, Claim: m.Claim, Entry: e}, true
}

// MaxBytes is how many bytes may be in flight.
func (d *Dispatch) MaxBytes() int { return d.cfg.MaxInFlightBytes }

// Random is the jitter of pauses, in [0,1).
func (d *Dispatch) Random() float64 {
	if d.cfg.Random == nil {
		return 0.5
	}
	return d.cfg.Random()
}

// broadcast wakes the goroutines that wait for room. Callers hold mu.
func (d *Dispatch) broadcast() {
	if d.waiters > 0 {
		close(d.changed)
		d.changed = make(chan struct{})
		d.waiters = 0
	}
}

func (d *Dispatch) kick() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}
