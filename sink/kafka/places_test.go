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

// B13: a partition without a leader gets a few messages, then none until it works: they come back at once, as an outage of
// this partition alone, and the others' flow.
func TestB13_DeadPartitionFillsNoRoom(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.addr(), nil)
	s := newSink(t, f.addr(), func(c *Config) { c.MaxInFlight = 1000 })
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

// In an outage of all partitions none is called away, at its beginning and at its end.
func TestPlacesInAnOutageOfAll(t *testing.T) {
	ps, now := newPlaces(100), time.Now()
	send := func(partition int) *delivery {
		one := &delivery{message: &outbox.Message{Topic: "orders"}}
		if !ps.enter(one, partition, now) {
			t.Fatalf("partition %d is called away", partition)
		}
		return one
	}
	for range 100 {
		for i := range 3 {
			ps.leave(send(i), outbox.ClassNone, now)
		}
		now = now.Add(100 * time.Millisecond)
	}
	var waiting []*delivery
	for range 90 { // more than half the room
		for i := range 3 {
			waiting = append(waiting, send(i))
		}
		now = now.Add(100 * time.Millisecond)
	}
	for i, one := range waiting {
		if ps.leave(one, outbox.ClassOutage, now) {
			t.Fatal("an outage of all is told to be of one alone")
		}
		waiting[i] = send(i % 3)
	}
	for i := range waiting {
		ps.leave(waiting[(i*7)%len(waiting)], outbox.ClassNone, now) // 7 and 270 have no common divisor
		send(i % 3)
		now = now.Add(time.Millisecond)
	}
}

// A partition that fails while others work is told apart, gets a trial now and then, and is back with its first success.
func TestB13_PlaceAwayAndBack(t *testing.T) {
	ps, now := newPlaces(100), time.Now()
	try := func(partition int) (*delivery, bool) {
		one := &delivery{message: &outbox.Message{Topic: "orders"}}
		return one, ps.enter(one, partition, now)
	}
	stuck, _ := try(0)
	for range 60 {
		other, _ := try(1)
		now = now.Add(100 * time.Millisecond)
		ps.leave(other, outbox.ClassNone, now)
	}
	if _, ok := try(0); ok {
		t.Fatal("a partition that has been silent for 6 s is not called away")
	}
	if !ps.leave(stuck, outbox.ClassOutage, now) {
		t.Fatal("its failure is not told to be its own")
	}
	if _, ok := try(0); ok {
		t.Fatal("a trial at once")
	}
	now = now.Add(placeTrial)
	trial, ok := try(0)
	if _, second := try(0); !ok || second {
		t.Fatalf("trial %v, a second one beside it %v", ok, second)
	}
	ps.leave(trial, outbox.ClassNone, now)
	if _, ok := try(0); !ok {
		t.Fatal("not back after a success")
	}
}
