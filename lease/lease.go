package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/lease/protocol"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Config identifies this process and sets the duration of a lease.
type Config struct {
	Time   time.Duration // duration of a renewal
	Holder string        // the state directory: the same over restarts, different for every other one
	Boot   string        // the start of the machine, up to 32 characters; "" where unknown, which counts as one start
	Host   string        // for people: the host of this process

	// Random returns numbers from 0 to 1, for the pauses; nil: math/rand.
	Random func() float64
}

// Record is a row of the lease table, and Resume the data that its holder left.
type (
	Record = protocol.Record
	Resume = protocol.Resume
)

// Rows is the lease table; Table implements it.
type Rows interface {
	// Read returns all rows and the counter.
	Read(ctx context.Context) (protocol.View, error)
	// Begin creates the counter unless there is one. birth is a random text, newest the term to count from.
	Begin(ctx context.Context, birth string, newest uint64) error
	// Take replaces other rows with one for the time ttl. The error is ErrTaken when the table has changed since it was read.
	// After any other error it may have happened.
	Take(ctx context.Context, take protocol.Take, ttl time.Duration) error
	// Renew extends the row of an acquisition to ttl from now; false when none matches.
	Renew(ctx context.Context, own protocol.Acquisition, at Resume, ttl time.Duration) (bool, error)
	// Release ends the row of an acquisition, if one matches. The pause stays as the last renewal wrote it.
	Release(ctx context.Context, own protocol.Acquisition, at Resume) error
}

// ErrTaken reports that another acquisition, or a renewal, came first.
var ErrTaken = protocol.ErrTaken

// ErrLost reports that another process holds the lease now.
var ErrLost = errors.New("another process has taken the lease over")

// Lease is this process's side of the lease, over many acquisitions. Create it with New. One goroutine at a time may call Acquire
// and Await; any may call everything else.
type Lease struct {
	cfg     Config
	rows    Rows
	log     *zap.Logger
	part    *protocol.Part // decides; owned by the goroutine that calls Acquire and Await
	metrics *metrics

	mu       sync.Mutex
	state    State
	grant    *Grant                 // of the last acquisition; nil while there is none
	followed map[server.ID]Followed // servers that answered while a row had a position of theirs
}

// maxFollowed is how many servers a lease remembers that answered: further ones are not recorded.
const maxFollowed = 100

// New returns a lease that this process does not hold. It does no I/O.
func New(cfg Config, rows Rows, log *zap.Logger) *Lease {
	if cfg.Random == nil {
		cfg.Random = mathrand.Float64
	}
	l := &Lease{cfg: cfg, rows: rows, log: log, followed: map[server.ID]Followed{}}
	l.part = protocol.NewPart(protocol.Config{
		Holder: cfg.Holder, Process: protocol.Process(cfg.Boot, rand.Text()[:16], cfg.Time), Host: cfg.Host, Time: cfg.Time,
	})
	l.metrics = newMetrics(l)
	l.state = State{Mode: Standby, Since: time.Now()}
	return l
}

// Alone returns a lease without a lease table: mode is Off or Solo, and why says what is missing. Its Grant is always valid.
func Alone(mode Mode, why string) *Lease {
	l := &Lease{state: State{Mode: mode, Since: time.Now(), Error: why}}
	l.metrics = newMetrics(l)
	return l
}

// Acquire makes this process the holder for the tables, or returns at once: the grant is nil while another process is active, or
// the database does not answer; State says which. A grant that this process holds already, perhaps of other tables, is released
// in the same step. A relay without a lease gets a nil grant too; held distinguishes the two.
//
// inherit is called before the lease is taken when another state directory was the last holder, with the data that it left: a
// zero At when this directory has newer data. It must store that durably, because the new row says that this directory has it. If
// it fails the lease is not taken.
func (l *Lease) Acquire(ctx context.Context, tables []string, inherit func(context.Context, Resume) error) (grant *Grant, held bool) {
	if l.rows == nil {
		return nil, true
	}
	grant, d, err := l.try(ctx, tables, inherit)
	if grant == nil {
		l.standBy(d, err)
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
		d, err := l.look(ctx, tables)
		if err == nil && d.Take != nil {
			return nil
		}
		if ctx.Err() == nil {
			l.standBy(d, err)
		}
	}
}

// pause is the time between two looks of a standby, and between two attempts to renew.
func (l *Lease) pause() time.Duration { return min(l.cfg.Time/10, time.Second) }

// limit bounds one exchange with the database, so that there is time for another one.
func (l *Lease) limit() time.Duration { return max(l.cfg.Time/3, 500*time.Millisecond) }

// jittered keeps processes that began together from querying together.
func (l *Lease) jittered(d time.Duration) time.Duration {
	return d - time.Duration(l.cfg.Random()*float64(d/5))
}

// look reads the table and decides. It creates a missing counter.
func (l *Lease) look(ctx context.Context, tables []string) (d protocol.Decision, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.limit())
	defer cancel()
	asked := time.Now()
	v, err := l.rows.Read(ctx)
	if err != nil {
		return d, err
	}
	l.follow(v)
	d = l.part.Look(v, tables, asked, time.Now())
	if d.Begin {
		d.Why = fmt.Sprintf("the lease table is new, or it lost its rows: waiting up to %v, for which a lost holder may still publish", l.cfg.Time)
		err = l.rows.Begin(ctx, rand.Text(), d.Newest)
	}
	return d, err
}

// follow records which server the relays of this lease table work on. An older position is that of an old copy with the same server_id: it
// does not replace a newer one.
func (l *Lease) follow(v protocol.View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range v.Rows {
		if r.Resume.Source.ServerID != v.Server || r.Resume.At.IsZero() {
			continue
		}
		known, followed := l.followed[r.Resume.Source]
		if (followed || len(l.followed) < maxFollowed) && r.Resume.At.Compare(known.At) >= 0 {
			l.followed[r.Resume.Source] = Followed{At: r.Resume.At, Seen: time.Now()}
		}
	}
}

// Followed is the newest position of a server that this process has read in the lease on that server, and when.
type Followed struct {
	At   outbox.Position
	Seen time.Time
}

// Followed returns what this process has read in the lease on a server while another relay worked on that server; zero for nothing.
func (l *Lease) Followed(id server.ID) Followed {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.followed[id]
}

// try acquires if the decision allows it. Without a grant the decision says why; it is zero when another process was faster.
func (l *Lease) try(ctx context.Context, tables []string, inherit func(context.Context, Resume) error) (grant *Grant, d protocol.Decision, err error) {
	d, err = l.look(ctx, tables)
	if err != nil || d.Take == nil {
		return nil, d, err
	}
	take := d.Take
	resume, theirs := l.inherit(take.From)
	if take.Next.Resume = resume; resume.At.IsZero() {
		take.Next.Resume.Source = server.ID{ServerID: take.Server}
	}
	if slices.ContainsFunc(take.From, func(r Record) bool { return r.Holder != l.cfg.Holder }) {
		if !theirs {
			resume.Source, resume.At = server.ID{}, outbox.Position{}
		}
		if err := l.handOver(ctx, resume, inherit); err != nil {
			return nil, protocol.Decision{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.limit())
	defer cancel()
	asked := time.Now()
	if err := l.rows.Take(ctx, *take, l.cfg.Time); err != nil {
		if errors.Is(err, ErrTaken) {
			err = nil // the next look finds out which process
		}
		return nil, protocol.Decision{}, err
	}
	held := protocol.Held{Time: l.cfg.Time, Acquisition: protocol.Acquisition{
		Term: take.Next.Term, Process: take.Next.Process, Tables: take.Next.Tables, Server: take.Server,
	}}
	return l.begin(held, asked), d, nil
}

// handOver runs before the acquisition: a process that dies between the two finds its row as its own, and checks no further.
func (l *Lease) handOver(ctx context.Context, left Resume, inherit func(context.Context, Resume) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.limit())
	defer cancel()
	return inherit(ctx, left)
}

// inherit chooses where to resume: the position of the last holder, the lowest of several. theirs reports that it is another
// state directory's; this one's own data is as new as its own row. A relay that takes over from a paused one is paused.
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

func (l *Lease) begin(held protocol.Held, asked time.Time) *Grant {
	g := &Grant{Term: held.Term, lease: l, held: held, order: make(chan struct{}, 1)}
	g.extend(asked)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grant != nil {
		l.grant.end()
	}
	l.grant, l.state = g, State{Mode: Active, Since: time.Now(), Term: held.Term}
	l.metrics.acquired.Inc()
	l.log.Info("this process holds the lease now, and publishes", zap.Uint64("term", held.Term), zap.Duration("time", l.cfg.Time))
	return g
}

// standBy records why this process does not hold the lease. It logs each reason once.
func (l *Lease) standBy(d protocol.Decision, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.state
	if l.state.Mode != Standby {
		l.state = State{Mode: Standby, Since: time.Now()}
	}
	if err != nil {
		if l.state.Error = err.Error(); before.Error == "" {
			l.log.Warn("the lease cannot be read or taken: standing by and trying again", zap.Error(err))
		}
		return
	}
	l.state.Error, l.state.Why = "", d.Why
	switch holder := d.Holder; {
	case holder != nil:
		l.state.Holder, l.state.Term, l.state.Paused = holder.Host, holder.Term, holder.Resume.Pause
		if before.Holder != holder.Host || before.Mode != Standby {
			l.log.Info("another process is active: standing by", zap.String("active", holder.Host), zap.Uint64("term", holder.Term))
		}
	case d.Why != "" && (before.Why != d.Why || before.Mode != Standby):
		l.log.Info("standing by: " + d.Why)
	}
}
