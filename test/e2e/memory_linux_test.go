package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// Transactions far over pipeline.max_transaction_bytes, the second ten times the first, while the broker holds everything it
// is sent (A18): the reader passes them by and the sweep brings them page by page. In flight is what the configuration
// allows, and the memory of the process does not follow the size of the transaction. The rows are large, because what the
// journal keeps of many small ones in memory has a bound of its own (C08), which a test of this size would not reach.
func TestA18_PeakMemoryOfALargeTransaction(t *testing.T) {
	relay.Long(t)
	const limit, size = 4 << 20, 8000
	onBothAtOnce(t, func(t *testing.T, flavor testkit.Flavor) {
		cluster := fake(t)
		// The server is this test's own: a reader that follows a shared server from a GTID lets that server read its whole log.
		l := newStage(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}), cluster,
			"pipeline: {max_in_flight_bytes: 4MiB, max_transaction_bytes: 4MiB}\nfallback: {interval: 1h, threshold: 1h}")
		l.Start(t)
		var total int
		var last, lastSize int64
		for _, rows := range []int{2_000, 20_000} {
			total += rows
			before := l.resetPeak()
			cluster.Swallow(true)
			l.large(fmt.Sprint("large", rows), rows, size)
			l.wait("the reader to pass the transaction", func() bool { return l.metrics()["deferred_total"] == float64(total) })
			l.heldWithin(limit, size)
			cluster.Swallow(false)
			l.waitCount(total, "status = 2")
			peak, bytes := l.peak(), int64(rows*size)
			t.Logf("a transaction of %d MB, bounds of %d MB: resident memory %d MB, at its peak %d MB", bytes>>20, 2*limit>>20, before>>20, peak>>20)
			if grown := peak - last; last > 0 && grown > (bytes-lastSize)/4 {
				t.Errorf("the peak grew by %d bytes with %d more in the transaction", grown, bytes-lastSize)
			}
			last, lastSize = peak, bytes
		}
		if n := len(l.published(topics[0])); n != total {
			t.Errorf("%d of %d messages", n, total)
		}
		l.stopInTime()
	})
}

// A transaction that the log may bring, because it is below pipeline.max_transaction_bytes, comes behind others that the broker
// holds, for longer than the server's net_write_timeout (A15): the stream waits in the socket and is not ended, because the
// session asked for patience. When it is cut all the same, in that state and in the middle of the transaction, it begins
// again and comes to its end. No more is in flight than configured, and what the process
// takes for the transaction is a small multiple of it: itself once, and what the collector lets lie.
func TestA15_A18_LargeTransactionBehindAPausedBroker(t *testing.T) {
	relay.Long(t)
	const limit, timeout = 2 << 20, 2
	onBothAtOnce(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor, Args: []string{fmt.Sprint("--net-write-timeout=", timeout)}})
		proxy := testkit.NewProxy(t, db.Addr())
		cluster := fake(t)
		l := newStageAt(t, db, proxy.Addr(), cluster,
			"pipeline: {max_in_flight_bytes: 2MiB, max_transaction_bytes: 256MiB}\nfallback: {interval: 1h, threshold: 1h, patience: 1h}")
		l.Start(t)
		l.fill(3000)
		l.waitCount(3000, "status = 2")
		before := l.resetPeak()
		cluster.Swallow(true)
		const rows, size, ahead = 40_000, 2500, 8000
		l.large("ahead", ahead, 600) // fills what may be in flight, so that the reader stops
		l.wait("the reader to stop", func() bool { return l.metrics()["in_flight_bytes"] > limit/2 })
		l.large("large", rows, size)
		l.blockedFor(3 * timeout * time.Second)
		if n := l.metrics()["reconnects_total"]; n != 0 {
			t.Errorf("the stream ended %v times though the session asked for patience", n)
		}
		l.heldWithin(limit, size)
		// The reader notices a cut only when it reads again, and the second one falls into the transaction.
		proxy.Cut()
		second := proxy.CutAfter(rows * size / 2)
		cluster.Swallow(false)
		<-second
		l.waitCount(3000+rows+ahead, "status = 2")
		grown, data := l.peak()-before, int64(rows*size)
		reconnects := l.metrics()["reconnects_total"]
		t.Logf("resident memory %d MB, at its peak %d MB more, for a transaction of %d MB and %d MB in flight; %v reconnects",
			before>>20, grown>>20, data>>20, limit>>20, reconnects)
		if grown > 4*data { // measured: two to three times
			t.Errorf("the memory grew by %d bytes for a transaction of %d", grown, data)
		}
		if reconnects < 1 || reconnects > 6 {
			t.Errorf("%v reconnects for two cuts", reconnects)
		}
		if n := len(l.published(topics[0])); n != 3000+rows+ahead {
			t.Errorf("%d of %d messages", n, 3000+rows+ahead)
		}
		// The sweep that the end of the silence asks for looks at the rows and must leave all of them to the log.
		for result, n := range l.metricBy("sweep_rows_total", "result") {
			if n != 0 && result != "owned" && result != "gone" {
				t.Errorf("%v rows came from the sweep (%s)", n, result)
			}
		}
		l.stopInTime()
	})
}

// large commits one transaction with a number of rows, whose bodies have that many bytes.
func (l *stage) large(name string, rows, size int) {
	l.t.Helper()
	tx, err := l.sql.Begin()
	testkit.Must(l.t, err)
	const chunk = 1000
	digits := "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 " +
		"UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	for at := 0; at < rows; at += chunk {
		_, err := tx.Exec(fmt.Sprintf("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) "+
			"SELECT '%s', CONCAT('%s', %d + a.d * 100 + b.d * 10 + c.d), '%s', REPEAT('x', %d) FROM %s a, %s b, %s c",
			name, name, at, topics[0], size, digits, digits, digits))
		testkit.Must(l.t, err)
	}
	testkit.Must(l.t, tx.Commit())
}

// heldWithin waits until the broker's silence has opened the breaker, and checks what is in flight then: the last message may
// have passed the bound, with the size of its row without the body.
func (l *stage) heldWithin(limit, body int64) {
	l.t.Helper()
	l.wait("the breaker to open", func() bool { return l.breaker() == "open" })
	s, err := l.Status()
	testkit.Must(l.t, err)
	if held, most := s.InFlight.Bytes, limit+body+512; held == 0 || held > most {
		l.t.Errorf("%d bytes are in flight, of %d that may be", held, most)
	}
}

// blockedFor returns when the server has been unable to write to the reader for that long without a break.
func (l *stage) blockedFor(least time.Duration) {
	l.t.Helper()
	var since time.Time
	l.wait("the server's dump to stop", func() bool {
		var state string
		err := l.db.Root().QueryRow("SELECT STATE FROM " + l.db.Processlist() + " WHERE COMMAND LIKE 'Binlog Dump%'").Scan(&state)
		if err != nil || !strings.Contains(state, "Sending") && !strings.Contains(state, "Writing") {
			since = time.Time{}
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) > least
	})
}

// resetPeak forgets the highest resident memory that the relay's process had, and returns the present one, in bytes.
func (l *stage) resetPeak() int64 {
	l.t.Helper()
	testkit.Must(l.t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", l.PID()), []byte("5"), 0))
	return l.resident("VmRSS")
}

func (l *stage) peak() int64 {
	l.t.Helper()
	return l.resident("VmHWM")
}

func (l *stage) resident(field string) int64 {
	l.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.PID()))
	testkit.Must(l.t, err)
	_, rest, found := strings.Cut(string(status), field+":")
	number, _, unit := strings.Cut(strings.TrimSpace(rest), " kB")
	if !found || !unit {
		l.t.Fatalf("no %s in %s", field, status)
	}
	kB, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	testkit.Must(l.t, err)
	return kB << 10
}
