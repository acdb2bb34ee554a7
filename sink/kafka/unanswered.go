package kafka

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// unanswered records which brokers have not answered a produce request. A broker, or a proxy in front of it, may answer every
// other request and not these; only an answer to one proves that messages are accepted. Hooks of the client library feed it. It
// is safe for concurrent use.
type unanswered struct {
	mu    sync.Mutex
	since map[int32]time.Time // broker -> its first produce request since its last answer to one
}

var (
	_ kgo.HookBrokerWrite = (*unanswered)(nil)
	_ kgo.HookBrokerRead  = (*unanswered)(nil)
)

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (u *unanswered) OnBrokerWrite(broker kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key != int16(kmsg.Produce) || err != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since == nil {
		u.since = map[int32]time.Time{}
	}
	if _, waits := u.since[broker.NodeID]; !waits { // the library repeats the request after its time-out: that is no answer
		u.since[broker.NodeID] = time.Now()
	}
}

// OnBrokerRead implements kgo.HookBrokerRead.
func (u *unanswered) OnBrokerRead(broker kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key != int16(kmsg.Produce) || err != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.since, broker.NodeID)
}

// clear forgets everything: the client has no message left that waits for an answer.
func (u *unanswered) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.since)
}

// overdue returns how long a broker has owed an answer, and whether that is longer than the limit.
func (u *unanswered) overdue(broker int32, limit time.Duration) (wait time.Duration, is bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at, waits := u.since[broker]
	if !waits {
		return 0, false
	}
	wait = time.Since(at)
	return wait, wait > limit
}
