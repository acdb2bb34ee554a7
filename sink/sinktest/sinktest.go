// Package sinktest is the conformance suite of package sink: a sink is finished when Run passes against a broker, fake or real.
//
// Guarantee: the suite checks the contract of sink.Sink from outside, by results and by the broker's content, never by the sink's
// internals. It owns no goroutine beyond those of the running case; each case ends with a check for goroutines that the sink
// left.
package sinktest

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"go.uber.org/goleak"
)

// Stored is one message as a consumer reads it.
type Stored struct {
	Topic     string
	Partition int32 // partition or queue number
	Offset    int64 // increases with the order inside the partition
	MessageID string
	Key       string
	Tag       string
	Headers   []outbox.Header // the row's own, without the sink's, in any order
	Body      []byte          // nil when the broker distinguishes "no value" from an empty one and there is none
}

// patience bounds every wait of the suite.
const patience = 3 * time.Minute

// Harness connects the suite with a sink and a running broker.
type Harness struct {
	// New returns a sink for this suite alone; the suite closes it.
	New func(t testing.TB) sink.Sink
	// Topic creates an empty topic with Partitions partitions and returns its name.
	Topic func(t testing.TB) string
	// Read returns everything the topic holds, ordered inside each partition.
	Read func(t testing.TB, topic string) []Stored

	// A zero value leaves out the cases that the broker does not support.
	Partitions   int    // of each topic from Topic; 2 or more
	MaxBytes     int    // a body of this size is accepted, one of twice the size is refused for good
	IllegalTopic string // a name that the sink refuses for good
	UnknownTopic string // a legal name of a topic that does not exist

	// RefusesEmpty says that a body that is SQL NULL or '' is refused for good; else each comes back as it is.
	RefusesEmpty bool

	// Poison changes a message so that only the broker can refuse it for good; nil when that is impossible.
	Poison func(*outbox.Message)

	// Stop makes the broker unreachable, Start makes it available again with its data. Both nil: the cases about outages are
	// skipped.
	Stop, Start func(t testing.TB)

	// Leaks are exceptions of the goroutine check: known leaks of the client library.
	Leaks []goleak.Option
}

// Run runs every case, one after the other, each with its own sink and topics.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *bench)
	}{
		{"OrderPerKey", orderPerKey},
		{"ContentIsCarried", contentIsCarried},
		{"ShardingKeyChoosesThePartition", shardingKey},
		{"PartitionOfTheRow", explicitPartition},
		{"B39_NullAndEmptyBody", nullAndEmptyBody},
		{"B07_OddHeaders", oddHeaders},
		{"B06_Oversize", oversize},
		{"B32_D15_PoisonInTheMiddle", poisonInTheMiddle},
		{"B32_D15_PoisonOnlyTheBrokerSees", poisonAtTheBroker},
		{"B08_IllegalTopic", illegalTopic},
		{"B34_UnknownTopic", unknownTopic},
		{"EmptyBatch", emptyBatch},
		{"LargeBatch", largeBatch},
		{"ConcurrentSend", concurrentSend},
		{"ProbeAndTopics", probeAndTopics},
		{"CloseDuringSend", closeDuringSend},
		{"SendAfterClose", sendAfterClose},
		{"OutageAndReturn", outageAndReturn},
		{"B30_CloseDuringOutage", closeDuringOutage},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newBench(t, h)) })
	}
}
