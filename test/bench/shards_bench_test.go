package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// shards is how many tables the relay of BenchmarkShards has that is compared with a relay of one.
const shards = 64

// spread is a relay whose rows are spread over its tables, transaction by transaction.
type spread struct {
	*fixture
	tables []*relay.Table
	next   int // transaction

	cpu  time.Duration
	wall time.Duration
	sent int

	batches uint64 // status updates
}

// BenchmarkShards compares what a message costs a relay of one table and a relay of 64 that a pattern names, on one server. Both run all
// the time and get the same load in turns, so whatever else the machine does meets both, and each also skips what the log has for the other.
// idle: nothing is written. steady: 500 rows/s, one a transaction. burst: four connections that write transactions of ten rows as fast as
// they can. drain: the same after a pause, from the log.
func BenchmarkShards(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		b.Run(string(flavor), func(b *testing.B) {
			one, many := newSpreads(b, flavor)
			b.Run("idle", func(b *testing.B) {
				for b.Loop() {
					first, second := one.usage(b).cpu, many.usage(b).cpu
					const span = 20 * time.Second
					<-time.After(span)
					b.ReportMetric(100*float64(one.usage(b).cpu-first)/float64(span), "one-percent-of-core")
					b.ReportMetric(100*float64(many.usage(b).cpu-second)/float64(span), "many-percent-of-core")
				}
			})
			for _, phase := range []struct {
				name string
				run  func(*spread, testing.TB)
			}{{"steady", (*spread).steady}, {"burst", (*spread).burst}, {"drain", (*spread).drain}} {
				b.Run(phase.name, func(b *testing.B) {
					run := func(s *spread) {
						before, updates, began := s.usage(b), s.statements(b), time.Now()
						phase.run(s, b)
						s.wall += time.Since(began)
						s.cpu += s.usage(b).cpu - before.cpu
						s.batches += s.statements(b) - updates
					}
					one.reset()
					many.reset()
					for b.Loop() {
						run(one)
						run(many)
						run(many)
						run(one)
					}
					b.ReportMetric(one.perMessage(), "one-cpu-µs/msg")
					b.ReportMetric(many.perMessage(), "many-cpu-µs/msg")
					b.ReportMetric(many.perMessage()/one.perMessage(), "cpu-ratio")
					b.ReportMetric(float64(one.sent)/one.wall.Seconds(), "one-rows/s")
					b.ReportMetric(float64(many.sent)/many.wall.Seconds(), "many-rows/s")
					b.ReportMetric(float64(one.sent)/float64(one.batches), "one-rows/update")
					b.ReportMetric(float64(many.sent)/float64(many.batches), "many-rows/update")
					b.ReportMetric(float64(one.connections(b)), "one-conns")
					b.ReportMetric(float64(many.connections(b)), "many-conns")
				})
			}
		})
	}
}

// newSpreads starts both relays.
func newSpreads(b *testing.B, flavor testkit.Flavor) (one, many *spread) {
	b.Helper()
	f := newFixture(b, flavor, "kafka")
	one = &spread{fixture: f, tables: []*relay.Table{f.table}}
	other := *f
	other.admin = freeAddress(b)
	other.Relay = relay.New(b, relay.Options{
		Source: f.db.Addr(), Tables: []*relay.Table{f.table}, Sink: f.broker.Sink(), Extra: fmt.Sprintf("admin: {listen: %q}\nfallback: {interval: 30s}\n", other.admin),
	})
	many = &spread{fixture: &other}
	for n := range shards {
		many.tables = append(many.tables, f.table.Like(b, fmt.Sprintf("shard_%02d", n)))
	}
	config, err := os.ReadFile(other.Config())
	testkit.Must(b, err)
	pattern := strings.Replace(string(config), f.table.FullName(), fmt.Sprintf("%s.shard_{00..%02d}", f.table.Schema, shards-1), 1)
	testkit.Must(b, os.WriteFile(other.Config(), []byte(pattern), 0o600))
	for _, s := range []*spread{one, many} {
		s.Start(b)
		s.write(b, 20, 1, rate.Every(2*time.Millisecond)) // warm
		s.write(b, 2000, 10, rate.Inf)
		s.settled(b)
	}
	return one, many
}

func (s *spread) reset() { s.cpu, s.wall, s.sent, s.batches = 0, 0, 0, 0 }

func (s *spread) perMessage() float64 { return float64(s.cpu.Microseconds()) / float64(s.sent) }

func (s *spread) steady(b testing.TB) {
	s.write(b, 5_000, 1, 500)
	s.settled(b)
}

func (s *spread) burst(b testing.TB) {
	s.write(b, 4_000, 10, rate.Inf)
	s.settled(b)
}

func (s *spread) drain(b testing.TB) {
	_, err := s.Client().Pause(b.Context(), outbox.Pause{Reason: "a backlog is made"})
	testkit.Must(b, err)
	s.write(b, 5_000, 10, rate.Inf)
	testkit.Must(b, s.Client().Resume(b.Context()))
	s.settled(b)
}

// write commits transactions of size rows, each into the next table, over four connections.
func (s *spread) write(b testing.TB, transactions, size int, perSecond rate.Limit) {
	b.Helper()
	type work struct {
		table *relay.Table
		rows  []relay.Row
	}
	limit, queue := rate.NewLimiter(perSecond, 1), make(chan work)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for w := range queue {
				if err := w.table.Insert(context.Background(), w.table.DB, w.rows...); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range transactions {
		testkit.Must(b, limit.Wait(b.Context()))
		queue <- work{s.tables[s.next%len(s.tables)], s.rows(size)}
		s.next++
	}
	close(queue)
	group.Wait()
	s.sent += transactions * size
}

// settled returns when every row is SENT.
func (s *spread) settled(b testing.TB) {
	for _, t := range s.tables {
		s.table = t
		s.awaitSent(b)
	}
}

// statements is how many status updates the relay has made.
func (s *spread) statements(b testing.TB) uint64 {
	b.Helper()
	return s.metrics(b)["canal_outbox_ack_batch_size"].GetMetric()[0].GetHistogram().GetSampleCount()
}

// connections is how many sockets the process has: those to the database, the broker, and a few of its own.
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
