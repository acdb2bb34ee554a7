package app

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/pipeline/readback"
	"github.com/canal-outbox/canal-outbox/sink"
)

const (
	lifeEvery = time.Second
	// The broker's clock may differ from ours where it sets the times of records.
	beforeSettled = 10 * time.Second
	// A request of a killed process may be under way, and its last second has no sign of life.
	afterAlive = 30 * time.Second
)

// life leaves signs of life for a start after a kill, and reads the topics back after one. A nil *life does nothing.
type life struct {
	dir  string
	log  *zap.Logger
	back *readback.ReadBack // nil: the last process stopped cleanly, or left nothing

	mu        sync.Mutex
	left      checkpoint.Life
	mark      outbox.Position // once the checkpoint is there, all that was sent before marked is journalled
	marked    time.Time
	past      bool      // the first mark was passed: the rows that a killed process may have sent are settled
	setBackAt time.Time // when an operator last set rows back; zero: not in this run
	failed    bool      // the last sign of life could not be left, and was logged
}

// newLife reads what a killed process has left and leaves the first own sign of life; nil where read_back is off or cannot work. A shadow
// run publishes nothing, so it leaves what it finds.
func (d *daemon) newLife(tables []*table.Table) (*life, error) {
	if d.opts.Shadow {
		return nil, nil
	}
	reader, can := relay.Unfenced(d.sink).(sink.CommittedReader)
	if !d.cfg.ReadBack.Enabled || !can {
		return nil, checkpoint.RemoveLife(d.cfg.Checkpoint.Dir) // it would be old when read_back is on again
	}
	now := time.Now()
	l := &life{dir: d.cfg.Checkpoint.Dir, log: d.log.Named("read_back"), left: checkpoint.Life{SettledAt: now}}
	before, found, err := checkpoint.ReadLife(l.dir)
	switch {
	case err != nil:
		l.log.Warn("not known when the last process was alive: rows that it had sent and not journalled are sent again", zap.Error(err))
	case found && d.held.TookOver():
		l.log.Info("another relay was active meanwhile: the topics are not read back")
	case found:
		l.left.SettledAt = before.SettledAt
		named := map[string]bool{}
		for _, t := range tables {
			named[t.Name()] = t.NamesMessages()
		}
		l.back = readback.New(readback.Config{
			Names: func(table string) bool { return named[table] },
			From:  before.SettledAt.Add(-beforeSettled), To: before.AliveAt.Add(afterAlive),
			MaxBytes: int64(d.cfg.ReadBack.MaxBytes), MaxTime: d.cfg.ReadBack.MaxTime,
		}, reader, l.log, d.registry)
	}
	l.leave(now)
	return l, nil
}

// leave writes a sign of life. Rows that an operator has set back are to be sent again though their topics have them: until what was sent before
// is out of reach, there is none. Callers hold mu, or are the only one.
func (l *life) leave(now time.Time) {
	if !l.setBackAt.IsZero() && l.left.SettledAt.Add(-beforeSettled).Before(l.setBackAt) {
		return
	}
	l.left.AliveAt = now
	err := l.left.Write(l.dir)
	if err != nil && !l.failed {
		l.log.Warn("no sign of life is left for a start after a kill", zap.Error(err))
	}
	l.failed = err != nil
}

// setBack is called before an operator sets rows back: no start after a kill takes them for sent.
func (l *life) setBack() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setBackAt = time.Now()
	return checkpoint.RemoveLife(l.dir)
}

// run leaves signs of life until the context ends.
func (l *life) run(ctx context.Context, d *daemon) {
	if l == nil {
		return
	}
	for outbox.Wait(ctx, lifeEvery, nil) {
		now := time.Now()
		if l.mark.IsZero() { // the rows that the killed process may have sent end here at the latest
			if end, err := d.asker.End(ctx); err == nil {
				l.mark, l.marked = end, now
			}
		}
		l.step(now, d)
	}
}

// step moves the time before which all is journalled, and leaves a sign of life.
func (l *life) step(now time.Time, d *daemon) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, has := d.state.Checkpoint(); has && d.relay.Ready() && !l.mark.IsZero() && at.Compare(l.mark) >= 0 {
		l.left.SettledAt = l.marked
		l.mark, l.marked = d.relay.Flow.Snapshot().Offered, now
		l.past = true
	}
	// Claims of the killed process are taken over when they expire.
	if l.past && l.back != nil && now.Sub(d.started) > 2*d.cfg.Fallback.ClaimTimeout+time.Minute {
		l.back.End()
	}
	l.leave(now)
}

// end removes the sign of life after a stop with which all that was sent is journalled.
func (l *life) end(d *daemon) error {
	if l == nil || !l.past {
		return nil
	}
	if at, has := d.state.Checkpoint(); !has || at.Compare(d.relay.Flow.Snapshot().Offered) < 0 {
		return nil
	}
	return checkpoint.RemoveLife(l.dir)
}
