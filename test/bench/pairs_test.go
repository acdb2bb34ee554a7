package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// spread is a relay whose rows are spread over its tables, transaction by transaction.
type spread struct {
	*fixture
	tables  []*relay.Table
	foreign int // updates of another application's rows per outbox row, each a transaction

	cpu  time.Duration
	wall time.Duration
	sent int

	batches uint64 // status updates
}

// pair are two relays that run all the time and get the same load alternately, so that other load affects both.
type pair struct {
	name      string // of its targets
	one, many *spread
}

// phase is a load: its preparation does not count; the rest is written or awaited until every row is SENT.
type phase struct {
	name    string
	prepare func(*spread, testing.TB)
	run     func(*spread, testing.TB)
}

// steady: 500 rows/s, one per transaction. burst: four connections that write transactions of ten rows as fast as they can.
// drain: the same, but written while the relay pauses. drainAmong: single rows among foreign updates, written while it pauses.
var (
	steady     = phase{"steady", func(*spread, testing.TB) {}, func(s *spread, b testing.TB) { s.write(b, share(5_000), 1, 500) }}
	burst      = phase{"burst", func(*spread, testing.TB) {}, func(s *spread, b testing.TB) { s.write(b, share(4_000), 10, rate.Inf) }}
	drain      = phase{"drain", func(s *spread, b testing.TB) { s.pauseFor(b, share(5_000), 10) }, (*spread).resume}
	drainAmong = phase{"drain", func(s *spread, b testing.TB) { s.pauseFor(b, share(5_000), 1) }, (*spread).resume}
)

// each compares the relays of each build, in each phase.
func (p *pair) each(b *testing.B, phases ...phase) {
	b.Helper()
	for _, u := range once() {
		b.Run(u.name, func(b *testing.B) {
			for _, s := range []*spread{p.one, p.many} {
				u.take(b, s.fixture)
				defer s.Kill()
			}
			p.start(b)
			p.idle(b)
			p.compare(b, u, phases...)
			p.one.Stop(b)
			p.many.Stop(b)
		})
	}
}

// compare reports the cost of a message for both, in each phase.
func (p *pair) compare(b *testing.B, u build, phases ...phase) {
	for _, phase := range phases {
		b.Run(phase.name, func(b *testing.B) {
			p.one.reset()
			p.many.reset()
			for b.Loop() {
				for _, s := range []*spread{p.one, p.many, p.many, p.one} {
					s.get(b, phase)
				}
			}
			one, many := p.one.perMessage(), p.many.perMessage()
			u.measured(p.name+"-"+phase.name, many/one)
			b.ReportMetric(many/one, "cpu-ratio")
			for name, s := range map[string]*spread{"one": p.one, "many": p.many} {
				b.ReportMetric(s.perMessage(), name+"-cpu-µs/msg")
				b.ReportMetric(float64(s.sent)/s.wall.Seconds(), name+"-rows/s")
				b.ReportMetric(float64(s.sent)/float64(s.batches), name+"-rows/update")
				b.ReportMetric(float64(s.connections(b)), name+"-conns")
			}
		})
	}
}

// get puts a load on the relay and measures its cost.
func (s *spread) get(b testing.TB, phase phase) {
	phase.prepare(s, b)
	before, updates, began := s.usage(b), s.statements(b), time.Now()
	profiled := s.profile(b, fmt.Sprintf("%s-%d-tables", phase.name, len(s.tables)))
	phase.run(s, b)
	s.settled(b)
	s.wall += time.Since(began)
	s.cpu += s.usage(b).cpu - before.cpu
	s.batches += s.statements(b) - updates
	profiled()
}

// idle reports the cost of both while nothing is written.
func (p *pair) idle(b *testing.B) {
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			first, second := p.one.usage(b).cpu, p.many.usage(b).cpu
			const span = 10 * time.Second
			<-time.After(span)
			b.ReportMetric(100*float64(p.one.usage(b).cpu-first)/float64(span), "one-percent-of-core")
			b.ReportMetric(100*float64(p.many.usage(b).cpu-second)/float64(span), "many-percent-of-core")
		}
	})
}

// start starts both and warms them.
func (p *pair) start(b testing.TB) {
	for _, s := range []*spread{p.one, p.many} {
		s.Start(b)
		s.write(b, 20, 1, rate.Every(2*time.Millisecond))
		s.write(b, 2000/(1+s.foreign), 10, rate.Inf) // the same number of transactions, including foreign ones
		s.settled(b)
	}
}

func (s *spread) reset() { s.cpu, s.wall, s.sent, s.batches = 0, 0, 0, 0 }

func (s *spread) perMessage() float64 { return float64(s.cpu.Microseconds()) / float64(s.sent) }

// pauseFor writes a backlog that the relay does not read yet.
func (s *spread) pauseFor(b testing.TB, transactions, size int) {
	s.pause(b)
	s.write(b, transactions, size, rate.Inf)
}

func (s *spread) resume(b testing.TB) { testkit.Must(b, s.Client().Resume(b.Context())) }

// write commits transactions of size rows, each into the next table, and the foreign updates.
func (s *spread) write(b testing.TB, transactions, size int, perSecond rate.Limit) {
	b.Helper()
	s.commit(b, commits{rows: transactions * size, size: size, perSecond: perSecond, into: s.tables, foreign: s.foreign})
	s.sent += transactions * size
}

// among updates rows of another application between those of the outbox.
func (s *spread) among(b testing.TB, updates int) {
	s.foreign = updates
	s.stock(b)
}

// settled returns when every row is SENT.
func (s *spread) settled(b testing.TB) {
	for _, t := range s.tables {
		s.table = t
		s.awaitSent(b)
	}
}

// statements returns the number of the relay's status updates.
func (s *spread) statements(b testing.TB) uint64 {
	b.Helper()
	return s.histogram(b, "ack_batch_size").GetSampleCount()
}

// connections returns the number of the process' sockets: to the database, the broker, and a few others.
func (s *spread) connections(b testing.TB) (n int) {
	b.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", s.PID())
	entries, err := os.ReadDir(dir)
	testkit.Must(b, err)
	for _, e := range entries {
		if target, err := os.Readlink(dir + "/" + e.Name()); err == nil && strings.HasPrefix(target, "socket:") { // else it was closed meanwhile
			n++
		}
	}
	return n
}
