package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Config says who this process is and how long a lease lasts.
type Config struct {
	Time   time.Duration // for which a renewal is good
	Holder string        // the state directory: the same over restarts, different for every other one
	Boot   string        // the start of the machine, up to 32 characters; "" where that is not known, which counts as one start
	Host   string        // for people: where this process runs

	// Random returns numbers from 0 to 1, for the pauses; nil: math/rand.
	Random func() float64
}

// Record is a row of the lease table.
type Record struct {
	Epoch   uint64 // of the acquisition; above those of all earlier ones
	Holder  string // Config.Holder
	Process string // one start of a program, and before it Config.Boot
	Host    string // Config.Host
	Tables  []string
	Ends    string // the database's text; another one after each renewal; "" when the lease was released
	Ended   bool   // by the database's clock
	Resume  Resume
}

// Resume is what the next holder has to know: where the log was done with, and whether an operator has paused the relay. A zero At
// is not known.
type Resume struct {
	Source server.ID
	At     outbox.Position
	Pause  *outbox.Pause // nil when there is none
}

// Rows is the lease table; Table implements it.
type Rows interface {
	// Read returns all rows, and the number of the newest acquisition that there ever was.
	Read(ctx context.Context) (all []Record, newest uint64, err error)
	// Take puts next into the place of what it shares with from, for as long as ttl, if newest is still the newest acquisition and none of
	// from has changed since it was read; else the error is ErrTaken. After any other error it may have happened.
	Take(ctx context.Context, next Record, newest uint64, from []Record, ttl time.Duration) error
	// Renew makes the row of an epoch last for ttl from now on; false when there is none.
	Renew(ctx context.Context, epoch uint64, at Resume, ttl time.Duration) (bool, error)
	// Release ends the row of an epoch, if there is one. The pause stays as the last renewal wrote it.
	Release(ctx context.Context, epoch uint64, at Resume) error
}

// ErrTaken says that another acquisition, or a renewal, came first.
var ErrTaken = errors.New("another process was faster")

// ErrLost says that another process holds the lease now.
var ErrLost = errors.New("another process has taken the lease over")

// Lease is this process's part in it, over many acquisitions. Make it with New. Acquire and Await are called by one goroutine at a
// time, everything else by any.
type Lease struct {
	cfg     Config
	rows    Rows
	log     *zap.Logger
	process string
	metrics *metrics

	started bool                // Acquire has looked once
	watched map[uint64]watching // other holders' rows, by epoch

	mu    sync.Mutex
	state State
	grant *Grant // of the last acquisition; nil while there is none
}

// watching is a row that does not change.
type watching struct {
	ends  string
	since time.Time
}

// New makes a lease that this process does not hold. It does no I/O.
func New(cfg Config, rows Rows, log *zap.Logger) *Lease {
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	l := &Lease{cfg: cfg, rows: rows, log: log, process: newProcess(cfg.Boot), watched: map[uint64]watching{}}
	l.metrics = newMetrics(l)
	l.state = State{Mode: Standby, Since: time.Now()}
	return l
}

// Alone returns a lease that is none: mode is Off or Solo, and why says what is missing. Its Grant is always valid.
func Alone(mode Mode, why string) *Lease {
	l := &Lease{state: State{Mode: mode, Since: time.Now(), Error: why}}
	l.metrics = newMetrics(l)
	return l
}

// Acquire makes this process the holder for the tables, at once or not at all: the grant is nil while another process is active, or
// the database does not answer; State says which. A grant that it holds already, of other tables perhaps, is given up in the same step.
// A relay without a lease gets a nil grant too, which held tells from the other.
//
// inherit is called before the lease is taken when another state directory was the last holder, with what that one left: a zero At when
// this directory knows better itself. It keeps that durably: the row that is taken says from then on that this directory has it. When it
// fails the lease is not taken.
func (l *Lease) Acquire(ctx context.Context, tables []string, inherit func(context.Context, Resume) error) (grant *Grant, held bool) {
	if l.rows == nil {
		return nil, true
	}
	grant, holder, err := l.try(ctx, tables, inherit)
	if grant == nil {
		l.standBy(holder, err)
	}
	return grant, grant != nil
}

// Await returns when Acquire may succeed; the error is that of ctx.
func (l *Lease) Await(ctx context.Context, tables []string) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(l.jittered(l.pause())):
		}
		_, _, holder, err := l.look(ctx, tables)
		if err == nil && holder == nil {
			return nil
		}
		if ctx.Err() == nil {
			l.standBy(holder, err)
		}
	}
}

// pause is between two looks of a standby, and between two attempts to renew.
func (l *Lease) pause() time.Duration { return min(l.cfg.Time/10, time.Second) }

// limit bounds one conversation with the database, so that there is time for another one.
func (l *Lease) limit() time.Duration { return max(l.cfg.Time/3, 500*time.Millisecond) }

// jittered keeps processes that began together from asking together.
func (l *Lease) jittered(d time.Duration) time.Duration {
	return d - time.Duration(l.cfg.Random()*float64(d/5))
}

// look reads the rows that are in the way of the tables, and the number of the newest acquisition. holder is who is active; nil when
// nobody is.
func (l *Lease) look(ctx context.Context, tables []string) (from []Record, newest uint64, holder *Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.limit())
	defer cancel()
	asked := time.Now()
	all, newest, err := l.rows.Read(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	for _, r := range all {
		if !slices.ContainsFunc(r.Tables, func(t string) bool { return slices.Contains(tables, t) }) {
			continue
		}
		from = append(from, r)
		if !l.mayTake(r, asked) && (holder == nil || holder.Ended) {
			holder = &r
		}
	}
	l.forget(from)
	l.started = true
	return from, newest, holder, nil
}

// try acquires if nobody is active. Without a grant holder is who is; nil when the database did not say, or somebody else was faster.
func (l *Lease) try(ctx context.Context, tables []string, inherit func(context.Context, Resume) error) (grant *Grant, holder *Record, err error) {
	from, newest, holder, err := l.look(ctx, tables)
	if err != nil || holder != nil {
		return nil, holder, err
	}
	r := Record{Epoch: newest + 1, Holder: l.cfg.Holder, Process: l.process, Host: l.cfg.Host, Tables: tables}
	resume, theirs := l.inherit(from)
	r.Resume = resume
	if slices.ContainsFunc(from, func(r Record) bool { return r.Holder != l.cfg.Holder }) {
		if !theirs {
			resume.Source, resume.At = server.ID{}, outbox.Position{}
		}
		if err := l.handOver(ctx, resume, inherit); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.limit())
	defer cancel()
	asked := time.Now()
	if err := l.rows.Take(ctx, r, newest, from, l.cfg.Time); err != nil {
		if errors.Is(err, ErrTaken) {
			err = nil // the next look says who it was
		}
		return nil, nil, err
	}
	return l.begin(r.Epoch, asked), nil, nil
}

// handOver is before the acquisition: a process that dies between the two finds its row to be its own, and looks no further.
func (l *Lease) handOver(ctx context.Context, left Resume, inherit func(context.Context, Resume) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.limit())
	defer cancel()
	return inherit(ctx, left)
}

// mayTake reports whether the holder of a row publishes nothing any more. asked is before the row was read.
func (l *Lease) mayTake(r Record, asked time.Time) bool {
	if r.Ends == "" || r.Holder == l.cfg.Holder && (r.Process == l.process || !l.started && boot(r.Process) == l.cfg.Boot) {
		return true
	}
	w, known := l.watched[r.Epoch]
	if !known || w.ends != r.Ends {
		l.watched[r.Epoch] = watching{ends: r.Ends, since: time.Now()}
		return false
	}
	unchanged := asked.Sub(w.since)
	return r.Ended && unchanged >= l.cfg.Time || unchanged >= 2*l.cfg.Time
}

// forget drops what was watched and is no more in the way.
func (l *Lease) forget(from []Record) {
	for epoch := range l.watched {
		if !slices.ContainsFunc(from, func(r Record) bool { return r.Epoch == epoch }) {
			delete(l.watched, epoch)
		}
	}
}

// inherit chooses where to resume: the position of the last holder, of several the lowest. theirs tells that it is another state
// directory's; what this one has is as new as its own row. Who takes over from a paused relay is paused.
func (l *Lease) inherit(from []Record) (at Resume, theirs bool) {
	var pause *outbox.Pause
	for _, r := range from {
		if pause == nil {
			pause = r.Resume.Pause
		}
		other := r.Holder != l.cfg.Holder
		lower := at.At.IsZero() || r.Resume.Source.Same(at.Source) && r.Resume.At.Compare(at.At) < 0
		if r.Resume.At.IsZero() || !lower && !(other && !theirs) {
			continue
		}
		at, theirs = r.Resume, theirs || other
	}
	at.Pause = pause
	return at, theirs
}

func (l *Lease) begin(epoch uint64, asked time.Time) *Grant {
	g := &Grant{Epoch: epoch, lease: l, order: make(chan struct{}, 1)}
	g.extend(asked)
	l.watched = map[uint64]watching{}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grant != nil {
		l.grant.end()
	}
	l.grant, l.state = g, State{Mode: Active, Since: time.Now(), Epoch: epoch}
	l.metrics.acquired.Inc()
	l.log.Info("this process holds the lease now, and publishes", zap.Uint64("epoch", epoch), zap.Duration("time", l.cfg.Time))
	return g
}

// standBy notes who is active; nil: nobody knows, for the reason err.
func (l *Lease) standBy(holder *Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.state
	if l.state.Mode != Standby {
		l.state = State{Mode: Standby, Since: time.Now()}
	}
	switch {
	case err != nil:
		if l.state.Error = err.Error(); before.Error == "" {
			l.log.Warn("the lease cannot be read or taken: standing by and asking again", zap.Error(err))
		}
	case holder == nil: // somebody else was faster
		l.state.Error = ""
	default:
		l.state.Holder, l.state.Epoch, l.state.Paused, l.state.Error = holder.Host, holder.Epoch, holder.Resume.Pause, ""
		if before.Holder != holder.Host || before.Mode != Standby {
			l.log.Info("another process is active: standing by", zap.String("active", holder.Host), zap.Uint64("epoch", holder.Epoch))
		}
	}
}
