package kafka

import (
	"sync/atomic"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// Records in the library's buffers are not written while the relay may not publish, and are written when it may again.
func TestNothingIsWrittenWithoutTheLease(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	var may atomic.Bool
	var asked atomic.Int64
	may.Store(true)
	s := newSink(t, f.Addr(), func(c *config) {
		c.limits.May = func() bool { asked.Add(1); return may.Load() }
	})
	all := messages(topic, 6)
	wantClass(t, outbox.ClassNone, publish(t, s, all[:3]...)...) // the connection is there now

	may.Store(false)
	before, in := asked.Load(), newInbox(t)
	s.Send(append([]*outbox.Message(nil), all[3:]...), in.done)
	testkit.WaitFor(t, patience, "the library to try more than once", func() bool { return asked.Load() > before+2 })
	if n := len(copies(t, f.Addr(), topic)); n != 3 {
		t.Fatalf("the broker has %d messages, 3 were sent while they might", n)
	}
	may.Store(true)
	wantClass(t, outbox.ClassNone, in.wait(all[3:]...)...)
	for id, n := range copies(t, f.Addr(), topic) {
		if n != 1 {
			t.Errorf("%s is stored %d times", id, n)
		}
	}
}
