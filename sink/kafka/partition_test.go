package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// B13: a partition without a leader gets a few messages, then none until it works: they are returned at once, as an outage of
// this partition alone, and the other partitions work.
func TestB13_DeadPartitionFillsNoRoom(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	s := newSink(t, f.Addr(), func(c *config) { c.limits.Messages = 1000 })
	fault := f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Partitions: []int32{2}, Err: kerr.NotLeaderForPartition, Count: -1})
	in, waiting, refused := newInbox(t), 0, 0
	var dead []*outbox.Message
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for n := 0; refused < 200; n++ {
		<-pace.C
		all := messages(topic, 8)
		for i, m := range all {
			m.MessageID, m.Partition = fmt.Sprint(n, "-", i), int32(i%4)
		}
		s.Send(append([]*outbox.Message(nil), all...), in.done)
		in.wait(all[0], all[1], all[3], all[4], all[5], all[7])
		dead = append(dead, all[2], all[6])
		back := in.have(dead)
		refused, waiting = len(back), len(dead)-len(back)
		for _, r := range back {
			if r.Class != outbox.ClassOutage || r.Scope != outbox.ScopePartition {
				t.Fatalf("%+v", r.Outcome)
			}
		}
		if waiting > 900 {
			t.Fatalf("%d messages for the dead partition are in flight of 1000 that there is room for", waiting)
		}
	}
	t.Logf("%d wait for the dead partition, %d came back", waiting, refused)
	fault.Remove()
	in.wait(dead...)
	testkit.WaitFor(t, patience, "the partition to work", func() bool {
		all := messages(topic, 1)
		all[0].Partition = 2
		return publish(t, s, all...)[0].Class == outbox.ClassNone
	})
}
