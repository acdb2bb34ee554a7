package relay

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline"
	"github.com/canal-outbox/canal-outbox/pipeline/readback"
	"github.com/canal-outbox/canal-outbox/pipeline/recovery"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Signs are where a process leaves its signs of life; checkpoint.Signs implements it for a state directory.
type Signs interface {
	// Read returns what the last process left that did not stop cleanly; false when there is none.
	Read() (outbox.Life, bool, error)
	Write(outbox.Life) error
	Remove() error
}

// LifeSettings are the times of signs of life, and the bounds of a read-back.
type LifeSettings struct {
	Every  time.Duration // between two signs
	Before time.Duration // margin before the time at which all was settled: the broker's clock may differ from ours where it sets the times of records
	After  time.Duration // margin behind the last sign: a request may be under way, and the last interval has no sign
	Claims time.Duration // for which the topics are read at least: a row may be suspended when the first sweep takes the claims over

	MaxBytes int64         // see readback.Config
	MaxTime  time.Duration // see readback.Config
}

// DefaultLife are the times of a relay with such a claim time-out.
func DefaultLife(claimTimeout time.Duration) LifeSettings {
	return LifeSettings{Every: time.Second, Before: 10 * time.Second, After: 30 * time.Second, Claims: 2*claimTimeout + time.Minute}
}

// LifeParts are what a Life is made of.
type LifeParts struct {
	Signs  Signs
	Source interface {
		End(ctx context.Context) (outbox.Position, error)
	}
	Checkpoint func() (outbox.Position, bool)
	Reader     sink.CommittedReader
	Names      func(table string) bool // see readback.Config
	// Shared gets the signs for a relay that takes over; HeldLease implements it. nil: there is none.
	Shared interface {
		Sign(*outbox.Life)
		Forget(context.Context) error
	}
}

// endPauses are between two questions for the end of the log; who asks is no matter of milliseconds.
var endPauses = outbox.Backoff{Base: 5 * time.Second, Max: time.Minute}

// Life leaves signs of life for a start after a kill, and reads the topics back after one. A nil *Life does nothing. Make it with NewLife.
type Life struct {
	parts    LifeParts
	settings LifeSettings
	log      *zap.Logger
	back     *readback.ReadBack // nil: the last process stopped cleanly, or left nothing
	began    time.Time

	mu         sync.Mutex
	left       outbox.Life
	mark       outbox.Position // once the checkpoint is there, all that was sent before marked is journalled
	marked     time.Time
	generation uint64    // of the positions that the mark is one of, see pipeline.Pipeline.Generation
	past       bool      // the first mark was passed: the rows of the log that a killed process may have sent are settled
	tookOver   bool      // the rows of sweeps too
	setBackAt  time.Time // when an operator last set rows back; zero: not in this run
	failed     bool      // the last sign of life could not be left, and was logged
}

// NewLife reads what a killed process has left and leaves the first own sign of life.
func NewLife(parts LifeParts, settings LifeSettings, log *zap.Logger, reg prometheus.Registerer) *Life {
	now := time.Now()
	l := &Life{parts: parts, settings: settings, log: log, began: now, left: outbox.Life{SettledAt: now, ClaimsAt: now}}
	before, found, err := parts.Signs.Read()
	switch {
	case err != nil:
		log.Warn("not known when the last process was alive: rows that it had sent and not journalled are sent again", zap.Error(err))
	case found:
		l.left.SettledAt, l.left.ClaimsAt = before.SettledAt, before.ClaimsAt
		if l.left.ClaimsAt.After(before.SettledAt) {
			l.left.ClaimsAt = before.SettledAt
		}
		l.back = readback.New(readback.Config{
			Names: parts.Names, From: before.SettledAt.Add(-settings.Before), To: before.AliveAt.Add(settings.After),
			Claims:   l.left.ClaimsAt.Add(-settings.Before),
			MaxBytes: settings.MaxBytes, MaxTime: settings.MaxTime,
		}, parts.Reader, log, reg)
	}
	l.leave(now)
	return l
}

// Earlier is what Parts.Earlier takes.
func (l *Life) Earlier() recovery.Earlier {
	if l == nil || l.back == nil {
		return nil
	}
	return l.back
}

// leave writes a sign of life. Rows that an operator has set back are to be sent again though their topics have them: until what was sent before
// is out of reach, there is none. Callers hold mu, or are the only one.
func (l *Life) leave(now time.Time) {
	if !l.setBackAt.IsZero() && l.left.SettledAt.Add(-l.settings.Before).Before(l.setBackAt) {
		return
	}
	if reach := l.setBackAt.Add(l.settings.Before); !l.setBackAt.IsZero() && l.left.ClaimsAt.Before(reach) {
		l.left.ClaimsAt = reach
	}
	l.left.AliveAt = now
	err := l.parts.Signs.Write(l.left)
	if err != nil && !l.failed {
		l.log.Warn("no sign of life is left for a start after a kill", zap.Error(err))
	}
	l.failed = err != nil
	if l.parts.Shared != nil {
		left := l.left
		l.parts.Shared.Sign(&left)
	}
}

// SetBack is called before an operator sets rows back: neither this run, nor a start after a kill, nor a relay that takes over takes them for sent.
func (l *Life) SetBack(ctx context.Context, ids []outbox.Identity) error {
	if l == nil {
		return nil
	}
	if l.back != nil {
		l.back.SetBack(ids)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setBackAt = time.Now()
	if err := l.parts.Signs.Remove(); err != nil || l.parts.Shared == nil {
		return err
	}
	return l.parts.Shared.Forget(ctx)
}

// Run leaves signs of life of a relay until the context ends.
func (l *Life) Run(ctx context.Context, r *Relay) {
	if l == nil {
		return
	}
	var next time.Time // a server that is away is not asked with each sign
	for failures := 0; outbox.Wait(ctx, l.settings.Every, nil); {
		now := time.Now()
		if l.mark.IsZero() && !now.Before(next) { // the rows that the killed process may have sent end here at the latest
			if end, err := l.end(ctx); err == nil {
				l.mark, l.marked = end, now
			} else {
				next = now.Add(endPauses.Delay(failures, 1))
				failures++
			}
		}
		l.step(now, r)
	}
}

// end asks for the end of the log for no longer than the time between two signs: a server that does not answer must not delay the next one.
func (l *Life) end(ctx context.Context) (outbox.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, l.settings.Every)
	defer cancel()
	return l.parts.Source.End(ctx)
}

// step moves the time before which all is journalled, and leaves a sign of life.
func (l *Life) step(now time.Time, r *Relay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Ready() && !l.mark.IsZero() {
		l.settle(now, r.Flow)
	}
	late := l.past && now.Sub(l.began) > l.settings.Claims
	if late && l.back != nil {
		l.back.OnlyClaimed()
	}
	// A gap of the log may have left rows to the sweep that the killed process had from the log: of a closed table it hands some over at a time.
	if late && r.Ready() && !r.Flow.Snapshot().TableClosed && r.Sweeper.TookOver() {
		l.tookOver = true
		if l.back != nil {
			l.back.End()
		}
		// What our sweeps sent may not be in the journal yet; what has no answer was sent before.
		l.left.ClaimsAt = l.left.SettledAt.Add(-l.settings.After)
		if since := r.Flow.SweptSince(); !since.IsZero() && since.Before(l.left.ClaimsAt) {
			l.left.ClaimsAt = since
		}
	}
	l.leave(now)
}

// settle moves the time when the checkpoint has passed the mark. It must be behind it, or no row may be left: while the mark was taken rows
// of the next transaction may have been sent. A position that was reset makes the mark void, which may be of another server. Callers hold mu.
func (l *Life) settle(now time.Time, flow *pipeline.Pipeline) {
	if generation := flow.Generation(); generation != l.generation {
		l.generation, l.mark = generation, outbox.Position{}
		return
	}
	at, has := l.parts.Checkpoint()
	state := flow.Snapshot()
	if !has || at.Compare(l.mark) < 0 || at.Compare(l.mark) == 0 && state.Owned > 0 {
		return
	}
	l.left.SettledAt = l.marked
	l.mark, l.marked = state.Offered, now
	l.past = true
}

// End removes the sign of life after a stop with which all that was sent is journalled, unless rows of a killed process may not be, or its claims
// stand, or rows of our own sweeps have no answer: these stay claimed.
func (l *Life) End(r *Relay) error {
	if l == nil || r.Flow == nil || l.back != nil && !l.tookOver || !r.Flow.SweptSince().IsZero() {
		return nil // without a flow the start was not over: what the journal has may be unknown yet
	}
	if at, has := l.parts.Checkpoint(); !has || at.Compare(r.Flow.Snapshot().Offered) < 0 {
		return nil
	}
	if l.parts.Shared != nil {
		l.parts.Shared.Sign(nil)
	}
	return l.parts.Signs.Remove()
}
