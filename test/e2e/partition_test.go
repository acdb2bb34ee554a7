package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// One partition of a cluster has no leader. Its rows wait in the table without losing an attempt, and neither fill the window
// nor open the breaker: rows for the other partitions are sent all the time, and the waiting ones follow when the partition
// works.
func TestB13_D16_PartitionWithoutLeader(t *testing.T) {
	t.Parallel()
	cluster := fakekafka.New(t, 3, map[string]int{topics[0]: 6, topics[1]: 6})
	l := newStage(t, testkit.SharedMySQL(t), cluster, "pipeline: {max_in_flight: 512}")
	l.Start(t)
	fault := cluster.Fault(testkit.KafkaFault{
		Key: kmsg.Produce, Topic: topics[0], Partitions: []int32{1, 4}, Err: kerr.LeaderNotAvailable, Count: -1,
	})
	pace := time.NewTicker(2 * time.Millisecond) // so that the room does not fill before anything can show
	defer pace.Stop()
	written, slowest := 0, time.Duration(0)
	write := func(n int) {
		for range n {
			<-pace.C
			l.row(fmt.Sprint("key", written), topics[0], "body")
			written++
		}
	}
	for l.metrics()["deferred_total"] < 300 {
		write(100)
		if written > 20_000 {
			t.Fatal("nothing was deferred")
		}
	}
	for range 20 { // a row for a partition that works is not held up by the others
		write(20)
		key := fmt.Sprint("fresh", written)
		testkit.Must(t, l.table.Insert(t.Context(), l.sql, relay.Row{BizType: "order", Key: key, Topic: topics[1], Body: []byte("body")}))
		written++
		began := time.Now()
		l.wait("a row of another topic to be SENT", func() bool { return l.table.Count(t, "biz_key = '"+key+"' AND status = 2") == 1 })
		slowest = max(slowest, time.Since(began))
	}
	waiting := l.table.Count(t, "status <> 2")
	t.Logf("%d rows, %d wait for their partitions, %v until the slowest of the others was SENT", written, waiting, slowest)
	if waiting == 0 || waiting > written/2 {
		t.Errorf("%d of %d rows wait, it should be about a third", waiting, written)
	}
	if n := l.table.Count(t, "retry_count > 0 OR status = 3"); n > 0 {
		t.Errorf("%d rows lost a try", n)
	}
	fault.Remove()
	l.waitCount(written, "status = 2 AND retry_count = 0")
	if got := l.published(topics...); len(got) != written {
		t.Errorf("%d of %d messages were published", len(got), written)
	}
	l.stopInTime()
}
