package rocketmq

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// cpu returns the processor time of this process; the broker is in another one.
func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkPublish sends 500-byte messages to a real broker with a bounded number in flight, over 1,000 keys and 8 queues, in
// batches of 1 and 100.
func BenchmarkPublish(b *testing.B) {
	r := testkit.NewRocketMQ(b, testkit.RocketMQOptions{Topics: map[string]int{"bench": 8}, Config: patientBroker})
	for _, handed := range []int{1, 100} {
		for _, window := range []int{100, 1000, 10000} {
			b.Run(fmt.Sprintf("handed=%d/window=%d", handed, window), func(b *testing.B) {
				s := startSink(b, Config{NameServers: []string{r.NameServer()}})
				send(b, s, messages("bench", "warm", 8)...).want(outbox.ClassNone)
				b.ReportAllocs()
				publish(b, s, handed, window)
			})
		}
	}
}

func publish(b *testing.B, s *Sink, handed, window int) {
	list := make([]*outbox.Message, 2*window)
	for i := range list {
		list[i] = message("bench", fmt.Sprint("key-", i%1000))
		list[i].Body = make([]byte, 500)
	}
	room := make(chan struct{}, window)
	var all sync.WaitGroup
	done := func(results []sink.Result) {
		for _, r := range results {
			if r.Class != outbox.ClassNone {
				b.Errorf("class %s: %s", r.Class, r.Reason)
			}
			<-room
			all.Done()
		}
	}
	before := cpu(b)
	b.ResetTimer()
	for sent := 0; sent < b.N; sent += handed {
		batch := make([]*outbox.Message, 0, handed)
		for i := range min(handed, b.N-sent) {
			room <- struct{}{}
			batch = append(batch, list[(sent+i)%len(list)])
		}
		all.Add(len(batch))
		s.Send(batch, done)
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/msg")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
