package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The broker's answer to every produce request, and the class that the caller gets after the client's and the sink's own retries.
func TestE2_AnswersOfTheBroker(t *testing.T) {
	f := newFake(t)
	for _, c := range []struct {
		answer *kerr.Error
		want   outbox.Class
	}{
		{kerr.MessageTooLarge, outbox.ClassPermanent},
		{kerr.RecordListTooLarge, outbox.ClassPermanent},
		{kerr.InvalidRecord, outbox.ClassPermanent},
		{kerr.PolicyViolation, outbox.ClassPermanent},
		{kerr.InvalidTopicException, outbox.ClassPermanent},
		{kerr.UnknownServerError, outbox.ClassRefused},
		{kerr.UnsupportedForMessageFormat, outbox.ClassRefused},
		{kerr.CorruptMessage, outbox.ClassRefused},
		{kerr.UnknownTopicOrPartition, outbox.ClassTopic},
		{kerr.UnknownTopicID, outbox.ClassTopic},
		{kerr.TopicAuthorizationFailed, outbox.ClassTopic},
		{kerr.ClusterAuthorizationFailed, outbox.ClassService},
		{kerr.NotLeaderForPartition, outbox.ClassOutage},
		{kerr.LeaderNotAvailable, outbox.ClassOutage},
		{kerr.NotEnoughReplicas, outbox.ClassOutage},
		{kerr.KafkaStorageError, outbox.ClassOutage},
		{kerr.InvalidTimestamp, outbox.ClassOutage},
	} {
		t.Run(c.answer.Message, func(t *testing.T) {
			topic := createTopic(t, f.Addr(), nil)
			s := newSink(t, f.Addr(), func(c *config) { c.times.delivery = time.Second })
			fault := f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Err: c.answer, Count: -1})
			defer fault.Remove()
			all := messages(topic, 3)
			wantClass(t, c.want, publish(t, s, all...)...)
			if fault.Hits() == 0 {
				t.Fatal("the broker gave no such answer")
			}
			fault.Remove()
			wantClass(t, outbox.ClassNone, publish(t, s, all...)...)
			for id, n := range copies(t, f.Addr(), topic) { // every class but unknown means: not stored
				if n != 1 {
					t.Errorf("message %s is stored %d times", id, n)
				}
			}
		})
	}
}

// After answers that leave it open whether the records are stored, the client keeps the records until that is known.
func TestE2_UncertainAnswersAreResolvedInside(t *testing.T) {
	f := newFake(t)
	for _, answer := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(answer.Message, func(t *testing.T) {
			topic := createTopic(t, f.Addr(), nil)
			s := newSink(t, f.Addr())
			f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Err: answer, Count: 2})
			all := messages(topic, 50)
			wantClass(t, outbox.ClassNone, publish(t, s, all...)...)
			for id, n := range copies(t, f.Addr(), topic) {
				if n != 1 {
					t.Errorf("message %s is stored %d times", id, n)
				}
			}
		})
	}
}

func TestE2_ErrorsOfTheClient(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	read := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, c := range []struct {
		err  error
		want outbox.Class
	}{
		{nil, outbox.ClassNone},
		{&kgo.ErrFirstReadEOF{}, outbox.ClassService},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, outbox.ClassService},
		{tls.RecordHeaderError{Msg: "not TLS"}, outbox.ClassService},
		{kerr.SaslAuthenticationFailed, outbox.ClassService},
		{kerr.UnsupportedSaslMechanism, outbox.ClassService},
		{kerr.IllegalSaslState, outbox.ClassService},
		{fmt.Errorf("%w, last err: %w", kgo.ErrRecordTimeout, kerr.SaslAuthenticationFailed), outbox.ClassService},
		{fmt.Errorf("%w, last err: %w", kgo.ErrRecordTimeout, kerr.InvalidRecord), outbox.ClassOutage},
		{kgo.ErrRecordTimeout, outbox.ClassOutage},
		{kgo.ErrRecordRetries, outbox.ClassOutage},
		{kgo.ErrMaxBuffered, outbox.ClassOutage},
		{kerr.ThrottlingQuotaExceeded, outbox.ClassOutage},
		{dial, outbox.ClassOutage},
		{read, outbox.ClassUnknown},
		{io.ErrUnexpectedEOF, outbox.ClassUnknown},
		{context.DeadlineExceeded, outbox.ClassUnknown},
		{context.Canceled, outbox.ClassUnknown},
		{kgo.ErrClientClosed, outbox.ClassUnknown},
		{kgo.ErrAborting, outbox.ClassUnknown},
		{kerr.RequestTimedOut, outbox.ClassUnknown},
		{kerr.NotEnoughReplicasAfterAppend, outbox.ClassUnknown},
		{kerr.NetworkException, outbox.ClassUnknown},
		{errors.New("topic purged while buffered"), outbox.ClassUnknown},
		{fmt.Errorf("%w (uncompressed_bytes=9)", kerr.MessageTooLarge), outbox.ClassPermanent},
	} {
		class, reason := classify(c.err)
		if class != c.want || (c.err == nil) != (reason == "") {
			t.Errorf("%v: class %s (%s), want %s", c.err, class, reason, c.want)
		}
		if c.err != nil && !strings.Contains(reason, c.err.Error()) {
			t.Errorf("%v: the reason does not name the error: %s", c.err, reason)
		}
	}
}

// A right that is granted later takes effect without a restart, although the library keeps a refused producer id.
func TestE2_ServiceRecovers(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	s := newSink(t, f.Addr())
	// The library (v1.22.2) requests the id while it still enters the topic's partitions. If the refusal comes before they are
	// entered, which happens only on a loaded machine, their messages are skipped: they wait for the topic's next message or the
	// next metadata refresh. So the refusal waits for the partitions.
	f.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.SleepControl(func() {
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
				if leader, _, err := s.current().PartitionLeader(topic, 0); leader >= 0 && err == nil {
					return
				}
			}
		})
		return nil, nil, false
	})
	f.Fault(testkit.KafkaFault{Key: kmsg.InitProducerID, Err: kerr.ClusterAuthorizationFailed, Count: 1})
	all := messages(topic, 1)
	wantClass(t, outbox.ClassService, publish(t, s, all...)...)
	for deadline := time.Now().Add(patience); ; { // the client is replaced in the background
		r := publish(t, s, all...)[0]
		if r.Class == outbox.ClassNone {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %s: %s", r.Class, r.Reason)
		}
	}
}
