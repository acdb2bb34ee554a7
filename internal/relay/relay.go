package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/ack"
	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/fallback"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/pipeline"
	"github.com/canal-outbox/canal-outbox/pipeline/recovery"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/redelivery"
	"github.com/canal-outbox/canal-outbox/retention"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Source is the database server as the relay asks for it, on connections that no identity guard refuses.
type Source interface {
	// Look says who answers and where its log ends, the end read last.
	Look(ctx context.Context) (server.Info, outbox.Position, error)
	// End is the file and the offset behind the last transaction.
	End(ctx context.Context) (outbox.Position, error)
}

// Rows are the mapped tables; *store.Store implements it.
type Rows interface {
	ack.Tables
	fallback.Rows
	recovery.Checker
}

// Reader follows the log; canal.Reader implements it.
type Reader interface {
	Run(ctx context.Context, from outbox.Position) error
	// LookAgain ends a wait for the next attempt to open a stream; an attempt continues.
	LookAgain()
}

// State is what must outlive the process; checkpoint.Store implements it.
type State interface {
	ack.Journal
	tracker.Journal
	// Source and Checkpoint return where to continue; false before the first start.
	Source() (server.ID, bool)
	Checkpoint() (outbox.Position, bool)
	// SetSource records the server of a checkpoint that has none.
	SetSource(server.ID) error
	// Reset sets the server and the checkpoint in one step, backwards too, with the reason. From then on commits of another
	// generation do not change the checkpoint; a State begins with generation 0.
	Reset(id server.ID, at outbox.Position, generation uint64, reason string) error
	// AddGap records a gap and returns its number.
	AddGap(outbox.Gap) (uint64, error)
	// Records returns the numbers of the journal's records, oldest first: each has sent rows that the table has not written.
	Records() ([]uint64, error)
	// Pause returns an operator's pause, nil when there is none; SetPause records one, or its end.
	Pause() *outbox.Pause
	SetPause(*outbox.Pause) error
}

// Parts are what a relay is made of at its edges. Tests and the simulation put models in their place. It is a list: one field for
// each part.
type Parts struct {
	Source Source
	Gate   *Gate // that the connections of Rows ask
	Rows   Rows
	Sink   sink.Sink
	State  State
	Reader func(canal.Handler) Reader // makes it
	// Prover is the Sink itself if its broker keeps the proof of what was sent; nil: the journal alone does.
	Prover sink.Prover
	// Retention takes old rows out of the tables, once the source is known to be the right one; nil for none.
	Retention *retention.Retention
	// Again is where final rows are that go out again; nil: none do.
	Again *Again
	// Earlier finds what a killed process has sent; nil: nothing is known.
	Earlier recovery.Earlier
	// Begin announces to other relays where this run begins, before it reads anything; nil: there are no others.
	Begin func(context.Context) error
	// Follow announces that this run continues on a copy of the recorded server, before that is recorded; nil likewise.
	Follow func(ctx context.Context, copied server.ID, at outbox.Position) error
	// Behind is called before a failover to a copy is recorded; what it returns is called when the tables can be asked, before they are swept. nil:
	// nothing is.
	Behind func() (report func(context.Context))
	// LogOnly are the tables without a status.
	LogOnly map[string]bool
	// Lost says that an earlier state was lost or corrupt, so that a start without a checkpoint is a gap and no first start.
	Lost bool
	// Descends proves that a server without GTIDs is a copy of the recorded one; nil: nothing can.
	Descends Descent
	// AcceptNewSource takes a server over that is not the recorded one, as a gap.
	AcceptNewSource bool
}

// Again is what makes final rows go out again.
type Again struct {
	Rows   redelivery.Rows
	Memory redelivery.Memory
}

// Settings are the numbers of the stations; zero values take their defaults.
type Settings struct {
	Pipeline pipeline.Config
	Ack      ack.Config
	Fallback fallback.Config
	Again    redelivery.Config
	Stop     time.Duration // for draining, while the broker takes messages; the flush of results has ack.Config.FlushTimeout
}

// Stations are the parts of a relay whose state people see. The start makes them: they can be read when Ready has returned true.
type Stations struct {
	Flow      *pipeline.Pipeline
	Acks      *ack.Acker
	Sweeper   *fallback.Sweeper
	Redeliver *redelivery.Redelivery // nil without Parts.Again
}

// DefaultStop is Settings.Stop where that is zero.
const DefaultStop = 4 * time.Second

// cutStop takes the place of Settings.Stop when the lease is lost, and for the sink when the drain has ended without all answers: those that
// are outstanding still come.
const cutStop = 500 * time.Millisecond

// Relay is the running service without its HTTP side. It has more than 25 methods because start, move of the checkpoint, pause and stop are sequences of steps
// over the same parts, each step one method.
type Relay struct {
	parts    Parts
	settings Settings
	log      *zap.Logger
	reg      prometheus.Registerer

	Stations
	triggers *fallback.Triggers
	tracker  *tracker.Tracker
	handler  *handler
	reader   Reader

	mu        sync.Mutex
	pending   *move              // until the reader's goroutine has carried it out
	interrupt context.CancelFunc // ends the reader's present run, or the pause in its place
	active    bool
	open      bool // the server is accepted, and the reader has a stream or waits for the tables
}

// New makes a relay. It does no I/O.
func New(parts Parts, settings Settings, log *zap.Logger, reg prometheus.Registerer) *Relay {
	if settings.Stop <= 0 {
		settings.Stop = DefaultStop
	}
	r := &Relay{parts: instrument(parts), settings: settings, log: log, reg: reg}
	r.handler = &handler{relay: r}
	r.reader = parts.Reader(r.handler)
	return r
}

// RefusedError says that the server is not the one of the checkpoint and that an operator must decide.
type RefusedError struct{ Why string }

// Error implements error.
func (e *RefusedError) Error() string {
	return "refused: the database server is not the one the checkpoint was taken on: " + e.Why +
		"; nothing was published or written. If this is intended, start with --accept-new-source or use `checkpoint set`"
}

// Run starts the stations, works until the context ends or a station fails, and stops them in order. A *RefusedError
// means that the source is not the recorded one.
func (r *Relay) Run(ctx context.Context) error {
	from, err := r.start(ctx)
	if err != nil {
		cerr := r.parts.Sink.Close(ctx)
		r.finish(ctx)
		if ctx.Err() != nil {
			return cerr
		}
		return errors.Join(err, cerr)
	}
	ended := make(chan error, 6)
	acks := spawn(ctx, ended, "ack", r.Acks.Run)
	flow := spawn(ctx, ended, "pipeline", r.Flow.Run)
	sweep := spawn(ctx, ended, "sweep", r.Sweeper.Run)
	reader := spawn(ctx, ended, "reader", func(ctx context.Context) error { return r.read(ctx, from) })
	var leaving *station
	if r.parts.Retention != nil {
		leaving = spawn(ctx, ended, "retention", r.parts.Retention.Run)
	}
	var again *station
	if r.Redeliver != nil {
		again = spawn(ctx, ended, "redelivery", r.Redeliver.Run)
	}
	r.setActive(true)
	select {
	case <-ctx.Done():
		r.log.Info("stopping: no more intake, waiting for what is in flight")
	case err = <-ended:
	}
	r.setActive(false)
	leaving.stop()
	again.stop()
	r.stop(ctx, acks, flow, sweep, reader)
	for {
		select {
		case late := <-ended: // of a station that failed while stopping
			err = errors.Join(err, late)
		default:
			return err
		}
	}
}

// stop follows the way of a message: intake, pipeline, sink, acknowledgements. The store is closed by its owner afterwards.
func (r *Relay) stop(ctx context.Context, acks, flow, sweep, reader *station) {
	fresh, patience := context.WithoutCancel(ctx), r.settings.Stop
	if errors.Is(context.Cause(ctx), lease.ErrLost) {
		patience = cutStop
	}
	reader.stop()
	sweep.stop()
	drain, cancel := context.WithTimeout(fresh, patience)
	if unanswered := r.Flow.Drain(drain); unanswered > 0 {
		patience = cutStop
		r.log.Warn("stopped before the broker answered: messages that it may have are sent again after the next start", zap.Int("messages", unanswered))
	}
	cancel()
	flow.stop()
	closing, cancel := context.WithTimeout(fresh, patience)
	defer cancel()
	if cerr := r.parts.Sink.Close(closing); cerr != nil {
		r.log.Warn("the sink did not close cleanly", zap.Error(cerr))
	}
	acks.stop()
	finishing, cancel := context.WithTimeout(fresh, patience)
	defer cancel()
	r.finish(finishing)
}

// station is one running part.
type station struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// spawn runs a part on a context of its own: the end of ctx reaches it through stop, in order.
func spawn(ctx context.Context, ended chan<- error, name string, run func(context.Context) error) *station {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &station{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if err := run(own); err != nil {
			ended <- fmt.Errorf("%s: %w", name, err)
		} else if own.Err() == nil {
			ended <- fmt.Errorf("%s ended without a request", name)
		}
	}()
	return s
}

func (s *station) stop() {
	if s == nil {
		return // a part that this relay does not have
	}
	s.cancel()
	<-s.done
}

func (r *Relay) setActive(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active = on
}

// Ready reports whether the relay is at work.
func (r *Relay) Ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active
}

// StillSince is the time since which nothing has moved though there is work and nothing outside is in the way; zero
// when all is well.
func (r *Relay) StillSince() time.Time {
	if !r.Ready() {
		return time.Time{}
	}
	return r.Flow.Snapshot().ResultSince
}
