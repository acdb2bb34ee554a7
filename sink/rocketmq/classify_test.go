package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	clienterrors "github.com/apache/rocketmq-client-go/v2/errors"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
	dto "github.com/prometheus/client_model/go"
)

// Each row of the error table, once over the wire: a broker that gives this answer.
func TestB05_EveryCodeHasItsClass(t *testing.T) {
	const acl = "org.apache.rocketmq.acl.common.AclException: "
	for _, line := range []struct {
		code   int
		remark string
		class  outbox.Class
	}{
		{remoting.Illegal, "the message is illegal, maybe msg body or properties length not matched.", outbox.ClassPermanent},
		{remoting.BadParameter, "The specified topic contains illegal characters", outbox.ClassPermanent},
		{remoting.BadParameter, "request queueId[99] is illegal, TopicConfig...", outbox.ClassOutage},
		{remoting.SystemError, "java.lang.NullPointerException, org.apache...", outbox.ClassRefused},
		{remoting.NoTopic, "topic[orders] not exist, apply first please!", outbox.ClassTopic},
		{remoting.NoPermission, "the broker[broker-a] sending message is forbidden", outbox.ClassTopic},
		{remoting.NoPermission, "User:relay has no permission to access Topic:orders from 10.0.0.1, decision is deny", outbox.ClassTopic},
		{remoting.NoPermission, "check signature failed.", outbox.ClassService},
		{remoting.NoPermission, "User:relay is not found.", outbox.ClassService},
		{remoting.SystemError, acl + "No default permission for orders, org.apache.rocketmq.acl.plain", outbox.ClassTopic},
		{remoting.SystemError, acl + "Check signature failed for accessKey=relay, org.apache", outbox.ClassService},
		{remoting.SystemError, acl + "No acl config for relay, org.apache", outbox.ClassService},
		{remoting.SystemBusy, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while", outbox.ClassOutage},
		{remoting.Unavailable, "service not available now. It may be caused by one of the following reasons: the broker's disk is full", outbox.ClassOutage},
		{remoting.FlowControl, "flow control", outbox.ClassOutage},
		{9999, "a code of a later release", outbox.ClassRefused},
	} {
		t.Run(fmt.Sprintf("%d_%s_%.20s", line.code, line.class, line.remark), func(t *testing.T) {
			c, s := newOrders(t)
			c.scripted("broker-a", func(request) reply { return reply{code: line.code, remark: line.remark} })
			for _, o := range append(send(t, s, message("orders", "k")).want(line.class), send(t, s, messages("orders", "k", 3)...).want(line.class)...) {
				if !strings.Contains(o.Reason, line.remark[:10]) || !strings.Contains(o.Reason, fmt.Sprint(line.code)) {
					t.Errorf("reason %q", o.Reason)
				}
			}
			var counted dto.Metric
			if err := s.alone.metrics.requests.WithLabelValues(line.class.String()).Write(&counted); err != nil || counted.GetCounter().GetValue() == 0 {
				t.Errorf("the request is not counted: %v", err)
			}
		})
	}
}

// A broker that is busy for a short time gets the same messages again after a pause, and no message overtakes them.
func TestBusyBrokerGetsTheBatchAgain(t *testing.T) {
	c, s := newOrders(t)
	refusals := 3
	c.scripted("broker-a", func(request) reply {
		c.mu.Lock()
		defer c.mu.Unlock()
		if refusals--; refusals >= 0 {
			return reply{code: remoting.SystemBusy, remark: "[TIMEOUT_CLEAN_QUEUE]broker busy"}
		}
		return reply{}
	})
	list := messages("orders", "k", 5)
	first, second := send(t, s, list[:3]...), send(t, s, list[3:]...)
	first.want(outbox.ClassNone)
	second.want(outbox.ClassNone)
	for i, m := range c.stored("orders") {
		if m.properties["UNIQ_KEY"] != list[i].MessageID {
			t.Errorf("message %d of the queue is %s", i, m.properties["UNIQ_KEY"])
		}
	}
}

// The errors of the library and the network, without a wire.
func TestLibraryErrorsHaveTheirClass(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, line := range []struct {
		err  error
		want completion
	}{
		{dial, completion{class: outbox.ClassOutage, away: true}},
		{fmt.Errorf("wrapped: %w", dial), completion{class: outbox.ClassOutage, away: true}},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, completion{class: outbox.ClassOutage, away: true}},
		{clienterrors.ErrNotRunning, completion{class: outbox.ClassOutage}},
		{clienterrors.ErrService, completion{class: outbox.ClassOutage}},
		{errors.New("the topic=orders route info not found"), completion{class: outbox.ClassOutage, stale: true, again: true}},
		{clienterrors.ErrRequestTimeout, completion{class: outbox.ClassUnknown, away: true}},
		{&net.OpError{Op: "write", Err: syscall.ECONNRESET}, completion{class: outbox.ClassUnknown, away: true}},
		{&net.OpError{Op: "write", Err: net.ErrClosed}, completion{class: outbox.ClassUnknown, away: true}},
		{io.EOF, completion{class: outbox.ClassUnknown, away: true}},
		{errors.New("CODE: x, DESC: y"), completion{class: outbox.ClassUnknown, away: true}},
	} {
		if got := classify(line.err); got != line.want {
			t.Errorf("%v: %+v, want %+v", line.err, got, line.want)
		}
	}
}

// What a broker stored less durably than asked is not SENT by default, and is with durability: lenient.
func TestB04_G29_LessDurableResults(t *testing.T) {
	for _, code := range []int{remoting.FlushDisk, remoting.NoSlave, remoting.FlushSlave} {
		for durability, want := range map[string]outbox.Class{NewSection().Durability: outbox.ClassUnknown, "lenient": outbox.ClassNone} {
			t.Run(fmt.Sprintf("%d_%s", code, durability), func(t *testing.T) {
				c, s := newOrders(t, func(cfg *Section) { cfg.Durability = durability })
				c.scripted("broker-a", func(request) reply { return reply{code: code} })
				for _, o := range append(send(t, s, message("orders", "k")).want(want), send(t, s, messages("orders", "k", 3)...).want(want)...) {
					if !o.LessDurable || o.BrokerID == "" {
						t.Errorf("outcome %+v", o)
					}
					if want == outbox.ClassUnknown && !strings.Contains(o.Reason, "durability: lenient") {
						t.Errorf("the reason does not say what to do: %q", o.Reason)
					}
				}
				c.scripted("broker-a", nil)
				send(t, s, message("orders", "k")).want(outbox.ClassNone)
			})
		}
	}
}

// One message of a batch is refused: it is found, its neighbours are stored in order, none of them is sent twice.
func TestB10_B32_TheCulpritIsIsolated(t *testing.T) {
	for _, code := range []int{remoting.Illegal, remoting.SystemError} {
		c, s := newOrders(t)
		c.scripted("broker-a", func(r request) reply {
			for _, m := range r.messages {
				if strings.HasPrefix(m.body, "poison") {
					return reply{code: code, remark: "bad"}
				}
			}
			return reply{}
		})
		list := messages("orders", "k", 200)
		list[0].Body, list[77].Body, list[199].Body = []byte("poison 1"), []byte("poison 2"), []byte("poison 3")
		outcomes := send(t, s, list...).wait()
		stored := c.stored("orders")
		for i, m := range list {
			want := outbox.ClassNone
			if strings.HasPrefix(string(m.Body), "poison") {
				want = classifyCode(code, "").class
			} else if len(stored) == 0 || stored[0].properties["UNIQ_KEY"] != m.MessageID {
				t.Fatalf("message %d is not next in the queue", i)
			} else {
				stored = stored[1:]
			}
			if outcomes[i].Class != want {
				t.Errorf("code %d, message %d: %+v", code, i, outcomes[i])
			}
		}
		if len(stored) != 0 {
			t.Errorf("%d messages are stored twice", len(stored))
		}
	}
}

// A time-out does not end the process, and the batch is not sent again, neither whole nor in parts: it takes no longer than three
// time-outs of one message.
func TestB01_B02_SwallowedReply(t *testing.T) {
	c, s := newOrders(t)
	c.scripted("broker-a", func(request) reply { return reply{swallow: true, store: true} })
	began := time.Now()
	batch, single := send(t, s, messages("orders", keyFor(0, 4), 10)...), send(t, s, message("orders", keyFor(1, 4)))
	single.want(outbox.ClassUnknown)
	one := time.Since(began)
	batch.want(outbox.ClassUnknown)
	if all := time.Since(began); all > 3*one {
		t.Errorf("a batch took %s, one message %s", all, one)
	}
	if n := len(c.stored("orders")); n != 11 {
		t.Errorf("%d messages are stored, want 11 once", n)
	}
}

func TestConnectionCutAfterTheWriteIsUnknown(t *testing.T) {
	c, s := newOrders(t)
	c.scripted("broker-a", func(request) reply { return reply{cut: true, store: true} })
	send(t, s, messages("orders", "k", 10)...).want(outbox.ClassUnknown)
	c.scripted("broker-a", nil)
	retried(t, s, messages("orders", "k", 10))
}

// retried sends until every message is published, as the pipeline would after an outage.
func retried(t *testing.T, s *Sink, list []*outbox.Message) {
	t.Helper()
	testkit.WaitFor(t, 30*time.Second, "the messages to be published", func() bool {
		for _, o := range send(t, s, list...).wait() {
			switch o.Class {
			case outbox.ClassNone:
			case outbox.ClassOutage, outbox.ClassUnknown:
				return false
			default:
				t.Fatalf("class %s: %s", o.Class, o.Reason)
			}
		}
		return true
	})
}
