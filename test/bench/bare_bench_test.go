package bench

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// BenchmarkCeilingSteady is the cost of a message at 500 per second in a process that does the minimum: it reads a packet,
// produces a Kafka record with the same client, and 20 ms later writes SENT for the collected ones. It decodes nothing, checks
// nothing and stores nothing.
func BenchmarkCeilingSteady(b *testing.B) {
	f := newFixture(b, testkit.MySQL, "kafka")
	n := share(7_500)
	f.fill(b, n, 100)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(b, err)
	defer listener.Close()
	program, err := os.Executable()
	testkit.Must(b, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s", bareEnv, listener.Addr(), f.broker.(relay.Kafka).Addr(), f.db.Addr(), f.table.FullName()))
	cmd.Stderr = os.Stderr
	testkit.Must(b, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }() // it has ended, if all went well
	connection, err := listener.Accept()
	testkit.Must(b, err)
	for b.Loop() {
		limit, packet := rate.NewLimiter(500, 1), make([]byte, 8+bodySize)
		warm := n / 10
		var used usage
		for i := range n {
			if i == warm {
				used = usageOf(b, cmd.Process.Pid)
			}
			testkit.Must(b, limit.Wait(b.Context()))
			binary.LittleEndian.PutUint64(packet, uint64(i+1))
			_, err := connection.Write(packet)
			testkit.Must(b, err)
		}
		f.awaitSent(b)
		cpu := float64((usageOf(b, cmd.Process.Pid).cpu - used.cpu).Microseconds()) / float64(n-warm)
		b.ReportMetric(cpu, "cpu-µs/msg")
		measured("bare-cpu", cpu)
		testkit.Exec(b, f.table.DB, "UPDATE "+f.table.Name()+" SET status = 0")
	}
	testkit.Must(b, errors.Join(connection.Close(), cmd.Wait()))
}

// bareEnv makes the test binary the process of BenchmarkCeilingSteady: addresses of the packets, the broker and the database, and
// the table.
const bareEnv = "BENCH_BARE"

// bare is that process, until the packets end.
func bare(args string) error {
	var packets, broker, database, name string
	if _, err := fmt.Sscan(args, &packets, &broker, &database, &name); err != nil {
		return err
	}
	from, err := net.Dial("tcp", packets)
	if err != nil {
		return err
	}
	to, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer to.Close()
	db, err := sql.Open("mysql", "root@tcp("+database+")/?interpolateParams=true")
	if err != nil {
		return err
	}
	defer db.Close()
	acknowledged := make(chan any, 10_000)
	written := make(chan error, 1)
	go func() { written <- markSent(db, name, acknowledged) }()
	for {
		packet := make([]byte, 8+bodySize)
		if _, err := io.ReadFull(from, packet); err != nil {
			break // the benchmark has closed it
		}
		id := binary.LittleEndian.Uint64(packet)
		to.Produce(context.Background(), &kgo.Record{Key: packet[:8], Value: packet[8:]}, func(_ *kgo.Record, err error) {
			if err == nil { // else the row stays PENDING, and the benchmark fails
				acknowledged <- id
			}
		})
	}
	err = to.Flush(context.Background())
	close(acknowledged)
	return errors.Join(err, <-written)
}

// markSent writes acknowledged rows, 20 ms after the first of each batch.
func markSent(db *sql.DB, name string, acknowledged <-chan any) error {
	for id := range acknowledged {
		time.Sleep(20 * time.Millisecond)
		ids := []any{id}
		for len(acknowledged) > 0 {
			ids = append(ids, <-acknowledged)
		}
		if _, err := db.Exec("UPDATE "+name+" SET status = 2 WHERE status = 0 AND id IN (?"+strings.Repeat(", ?", len(ids)-1)+")", ids...); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkCeilingSweep does only the SQL of a sweep with a backlog in the table: list, claim, read back and write SENT, by two
// concurrent workers. It does not publish the rows.
func BenchmarkCeilingSweep(b *testing.B) {
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		l := newLoad(b, durable(b, flavor), preset)
		n := share(100_000)
		l.fill(b, n, 100)
		store := l.store(b)
		for b.Loop() {
			b.StopTimer()
			testkit.Exec(b, l.table.DB, "UPDATE "+l.table.Name()+" SET status = 0")
			b.StartTimer()
			began := time.Now()
			l.sweep(b, store)
			perSecond := float64(n) / time.Since(began).Seconds()
			b.ReportMetric(perSecond, "rows/s")
			measured("sweep-sql-"+string(flavor), perSecond)
		}
		if left := l.table.Count(b, "status <> 2"); left > 0 {
			b.Errorf("%d rows are not SENT", left)
		}
	})
}

// sweep is the SQL of a sweep.
func (l *load) sweep(b *testing.B, store *store.Store) {
	work := make(chan []outbox.Candidate, 2)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for page := range work {
				if err := publish(b.Context(), store, page); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for at := (table.Cursor{}); !at.Done(); {
		page, next, err := store.Due(b.Context(), l.table.FullName(), at, table.DueQuery{ExpiredClaims: time.Minute})
		testkit.Must(b, err)
		if len(page) > 0 {
			work <- page
		}
		at = next
	}
	close(work)
	group.Wait()
}

// publish claims rows, reads them and marks them as sent.
func publish(ctx context.Context, store *store.Store, page []outbox.Candidate) error {
	token, err := store.Claim(ctx, page)
	if err != nil {
		return err
	}
	ids := make([]outbox.Identity, len(page))
	for i, c := range page {
		ids[i] = c.Identity
	}
	messages, faulty, err := store.ReadBack(ctx, token, ids)
	if err != nil || len(faulty) > 0 {
		return fmt.Errorf("%d faulty rows, %v", len(faulty), err)
	}
	sent := make([]outbox.Completion, len(messages))
	for i, m := range messages {
		sent[i] = outbox.Completion{Identity: m.Identity, Action: outbox.ActionMarkSent, Claim: m.Claim}
	}
	refused, err := store.Apply(ctx, sent)
	if err != nil || len(refused) > 0 {
		return fmt.Errorf("%d refused, %v", len(refused), err)
	}
	return nil
}
