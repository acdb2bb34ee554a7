package rocketmq

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// While the relay may not publish no request is sent, and the messages are returned as in an outage, which costs no attempt.
func TestNothingIsSentWithoutTheLease(t *testing.T) {
	c := newCluster(t)
	c.topic("orders")
	var may atomic.Bool
	s := startSink(t, Section{NameServers: []string{c.names.addr}}, may.Load)
	for _, o := range send(t, s, messages("orders", "k", 3)...).want(outbox.ClassOutage) {
		if o.Scope != outbox.ScopeCluster || !strings.Contains(o.Reason, sink.ErrMayNot.Error()) {
			t.Errorf("outcome %+v", o)
		}
	}
	if n := len(c.stored("orders")); n != 0 {
		t.Errorf("the broker has %d messages", n)
	}
	may.Store(true)
	send(t, s, messages("orders", "k", 3)...).want(outbox.ClassNone)
}
