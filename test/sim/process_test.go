package sim

import (
	"context"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/pipeline/recovery"
	"github.com/canal-outbox/canal-outbox/retention"
	"github.com/canal-outbox/canal-outbox/sink"
)

// incarnation is one process: a relay on its own models of the connections to the world. When it is killed nothing it does
// counts any more; its goroutines are stopped behind the scenes.
type incarnation struct {
	w     *world
	disk  *disk
	team  *member // nil where this is the only process
	life  int     // counted from 1
	plan  life
	files *vfs.MemFS
	log   *zap.Logger
	bugs  []prometheus.Counter

	gate     *relay.Gate
	relay    *relay.Relay
	state    *state
	sink     *sinkModel
	alive    *relay.Life // nil: it leaves no sign of life
	setsBack *row        // an operator's order, see setback_test.go
	ctx      context.Context
	cancel   context.CancelFunc
	killed   chan struct{} // closed at the kill
	ended    chan error    // buffered 1: what Run returned

	// Guarded by world.mu.
	dead      bool
	steps     int
	reached   outbox.Position // what the stream has offered
	source    server.ID       // whose
	peer      server.ID       // at the end of the tables' connections; zero: the next one asks the guard
	accepts   int             // --accept-new-source, of this number
	settled   bool            // whose log it follows is recorded
	topics    map[string]bool // that the broker did not know
	disturbed map[string]bool // keys, see ordering_test.go
	deferrals int             // that the reader has reported
	random    *dice

	// See readback_test.go.
	began       time.Time
	predecessor *incarnation
	diedAt      time.Duration // killed
	stoppedAt   time.Duration
	settledAt   time.Time                // as the dead process has left it
	aliveAt     time.Time                // likewise, where its last sign is lost; else zero
	reaches     int                      // the first life of which its sign of life speaks
	looks       map[look]looked          // the last one
	queued      map[string]time.Duration // by topic: what was stored before is in its queues
	known       map[look]time.Duration   // what was stored before was to be seen
	unread      map[string]bool          // topics that could not be read, as the log says
	hindered    bool                     // and with reason: a request failed
	lookedAt    time.Duration            // or time is up since then
	read        map[*row]bool            // of which a copy was seen

	gateRead map[string]time.Time // when the gate has read a table last
	knew     map[string]time.Time // when knowsRows became true
	anchored time.Time            // when it began, or its mark was moved last
	silent   bool                 // the mark was moved, and no transaction was offered since
	gapAt    time.Time            // of an anchor whose full sweep is to come; zero for none
	sweeps   int
}

// start makes a process on a state directory and lets it run.
func (w *world) start(d *disk, l life) *incarnation {
	w.mu.Lock()
	i := w.incarnate(d, l, w.enlist(d))
	w.mu.Unlock()
	i.ctx, i.cancel = context.WithCancel(context.Background())
	if l.end == endKill {
		time.AfterFunc(l.at, func() { i.kill("at a time") })
	}
	w.background.Add(1)
	go func() {
		defer w.background.Done()
		i.ended <- i.run()
	}()
	return i
}

// incarnate makes a process that does nothing yet. Callers hold mu.
func (w *world) incarnate(d *disk, l life, m *member) *incarnation {
	i := &incarnation{
		w: w, disk: d, team: m, life: len(w.incarnations) + 1, plan: l, files: d.files, killed: make(chan struct{}), gate: relay.NewGate(), ended: make(chan error, 1),
		topics: map[string]bool{}, disturbed: map[string]bool{}, gateRead: map[string]time.Time{}, knew: map[string]time.Time{}, anchored: time.Now(), began: time.Now(), predecessor: d.present, read: map[*row]bool{},
	}
	i.random = newDice(w.seed, "jitter", uint64(i.life))
	w.incarnations = append(w.incarnations, i)
	d.present = i
	i.accepts = w.replaced
	w.note(i.life, "start", "", "", 0)
	i.log = zap.New(logCore{i})
	return i
}

func (i *incarnation) run() error {
	if i.team != nil {
		return i.serveByLease()
	}
	state, err := i.openState()
	if err != nil {
		return err
	}
	sink := newSink(i)
	if i.w.plan.exactly {
		err = i.runExactly(state, sink)
	} else {
		err = i.runAlive(state, sink)
	}
	if cerr := state.Close(); err == nil {
		err = cerr
	}
	return err
}

// relayOn makes the relay. through is the sink, or what is in front of it.
func (i *incarnation) relayOn(state *state, s *sinkModel, through sink.Sink, lost bool, begin func(context.Context) error, earlier recovery.Earlier) *relay.Relay {
	settings := i.w.plan.settings
	random := func() float64 {
		i.w.mu.Lock()
		defer i.w.mu.Unlock()
		return i.random.float()
	}
	settings.Pipeline.Random, settings.Pipeline.May = random, s.may
	settings.Ack.Random = random
	settings.Fallback.Random = random
	settings.Again.Transport = service{i}
	var prover sink.Prover
	if s.exact != nil {
		prover = s.exact
	}
	relay := relay.New(relay.Parts{
		Prover: prover,
		Source: source{i}, Gate: i.gate, LogOnly: map[string]bool{logTable: true}, Rows: rows{i}, Sink: through, State: state, Lost: lost, AcceptNewSource: i.accepts > 0,
		Reader:    func(h canal.Handler) relay.Reader { return &reader{i: i, handler: h, again: make(chan struct{}, 1)} },
		Retention: retention.New(drawRetention(i.w.plan, i.w.seed), rows{i}, i.log, registerer{i}),
		Again:     i.again(state),
		Begin:     begin,
		Earlier:   earlier,
	}, settings, i.log, registerer{i})
	i.w.mu.Lock()
	i.relay, i.state, i.sink = relay, state, s
	i.w.mu.Unlock()
	return relay
}

// mayRefuse says that the relay is right to refuse the server. Callers hold mu.
func (i *incarnation) mayRefuse() bool { return i.w.replaced > i.accepts }

// knowsServer says that the reader has met the server that is there now. After a failover it had no time to, the tables'
// connections refuse the new server until the next start, and the journal keeps what they did not take.
func (i *incarnation) knowsServer() bool {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	return i.source == i.w.id
}

// stateLost is what a start finds in the origin of the store.
func (i *incarnation) stateLost() bool {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	return i.disk.lost
}

// step is a place where the process may be killed. It reports whether it is dead.
func (i *incarnation) step(what string) bool {
	i.w.mu.Lock()
	i.steps++
	hit := i.plan.end == endKillAtStep && i.steps == i.plan.after
	dead := i.dead
	i.w.mu.Unlock()
	if hit && !dead {
		i.kill(what)
		return true
	}
	return dead
}

// kill ends the process as SIGKILL and a loss of power do: from this instant on nothing it does has any effect, and of what
// it wrote and did not sync any part may be gone.
func (i *incarnation) kill(why string) {
	w := i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	i = i.latest()
	if i.dead || i.disk.present != i {
		return
	}
	i.dead, i.diedAt = true, w.at()
	i.disk.loseSign(w.dice("sign", 0))
	d := w.dice("kill", 0)
	w.note(i.life, "KILL", "", why, i.steps)
	percent := pick(d, 0, 0, 0, 0, 100, 100, 100, 30) // with a part the engine's maps make replays differ
	i.disk.torn = percent == 30
	i.disk.files = i.files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: d.rand()})
	if i.sink != nil {
		i.sink.cut(d)
	}
	i.cancel()
	close(i.killed)
}

// anchoredAt notes that the mark was moved: what was open is forgotten and a full sweep must follow. Callers hold mu.
func (i *incarnation) anchoredAt(at outbox.Position) {
	i.reached = at
	for _, r := range i.w.lives {
		r.of(i.life).forgiven = true
	}
	i.gapAt, i.anchored, i.silent = time.Now(), time.Now(), true
}

// bugCount is the relay's own count of broken bookkeeping.
func (i *incarnation) bugCount() float64 {
	sum := 0.0
	for _, c := range i.bugs {
		var m dto.Metric
		if c.Write(&m) == nil {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// registerer keeps only what counts bugs: a real registry would take longer than the run.
type registerer struct{ i *incarnation }

func (r registerer) Register(c prometheus.Collector) error {
	if counter, ok := c.(prometheus.Counter); ok && strings.Contains(counter.Desc().String(), "internal_errors_total") {
		r.i.bugs = append(r.i.bugs, counter)
	}
	return nil
}

func (r registerer) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		_ = r.Register(c)
	}
}

func (r registerer) Unregister(prometheus.Collector) bool { return true }

// logCore puts the relay's log into the trace.
type logCore struct{ i *incarnation }

func (c logCore) Enabled(l zapcore.Level) bool      { return l >= zapcore.InfoLevel }
func (c logCore) With([]zapcore.Field) zapcore.Core { return c }
func (c logCore) Sync() error                       { return nil }
func (c logCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return checked.AddCore(e, c)
}

// Write takes mu: a caller that logs must not hold it.
func (c logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, event{at: w.at(), life: c.i.life, what: "log " + e.Level.String(), detail: e.Message, fields: fields})
	if strings.Contains(e.Message, "please report this") && !c.i.dead {
		w.violation("bookkeeping", "%s", e.Message)
	}
	if strings.Contains(e.Message, "could not be read back") && fields[0].Key == "topic" {
		c.i.unread[fields[0].String] = true
		if !c.i.hindered && w.at()-c.i.lookedAt < w.plan.readBack.MaxTime {
			w.violation("read back", "%s could be read", fields[0].String)
		}
	}
	return nil
}
