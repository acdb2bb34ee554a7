package kafka

import (
	"crypto/tls"
	"errors"
	"net"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// classify maps an error of the client library to its class and a reason for an operator. It is the only place that interprets
// such errors. Error codes: Apache Kafka protocol guide, "Error Codes".
func classify(err error) (outbox.Class, string) {
	class, advice := classOf(err)
	if class == outbox.ClassNone {
		return class, ""
	}
	if advice != "" {
		advice = "; " + advice
	}
	return class, "Kafka: " + err.Error() + advice
}

func classOf(err error) (class outbox.Class, advice string) {
	var code *kerr.Error
	known := errors.As(err, &code)
	var firstRead *kgo.ErrFirstReadEOF
	var certificate *tls.CertificateVerificationError
	var plaintext tls.RecordHeaderError
	var dial *net.OpError
	switch {
	case err == nil:
		return outbox.ClassNone, ""
	case errors.As(err, &firstRead):
		return outbox.ClassService, "check sink.kafka.tls and sink.kafka.sasl against the broker's listener"
	case errors.As(err, &certificate):
		return outbox.ClassService, "check sink.kafka.tls.ca and the names in the broker's certificate"
	case errors.As(err, &plaintext):
		return outbox.ClassService, "the listener does not speak TLS: check the port and sink.kafka.tls"
	case errors.As(err, new(*loginError)):
		return outbox.ClassService, "nothing can log in before this is mended; it is tried again"
	case server.PeerRefused(err):
		return outbox.ClassService, "the broker does not accept the client certificate: check sink.kafka.tls.cert"
	case known && noService(code):
		return outbox.ClassService, "check the user, password and rights of sink.kafka.sasl"
	// With an idempotent producer the library returns these only when certainly nothing is stored: never sent, or refused at each
	// try. The last error in them may be about another message.
	case errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries):
		return outbox.ClassOutage, "no broker took the message within sink.kafka.delivery_timeout"
	case known:
		return classOfCode(code)
	case errors.Is(err, kgo.ErrMaxBuffered):
		return outbox.ClassOutage, "more messages are in flight than sink.kafka is configured for"
	case errors.As(err, &dial) && dial.Op == "dial": // before a first byte
		return outbox.ClassOutage, ""
	}
	// Contexts, ErrClientClosed, ErrAborting, a purged topic, anything new: the message may have been sent.
	return outbox.ClassUnknown, ""
}

// noService: everything fails with these until an operator acts.
func noService(code *kerr.Error) bool {
	switch code {
	case kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState:
		return true
	}
	return false
}

func classOfCode(code *kerr.Error) (outbox.Class, string) {
	switch code {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge:
		return outbox.ClassPermanent, "compare the message with max.message.bytes and segment.bytes of the topic"
	case kerr.InvalidRecord:
		return outbox.ClassPermanent, "a compacted topic takes no message without a key"
	case kerr.PolicyViolation, kerr.InvalidTopicException:
		return outbox.ClassPermanent, ""
	case kerr.InvalidTimestamp: // a record has the time of its send, so no row is at fault
		return outbox.ClassOutage, "compare the clocks of this machine and of the broker, and message.timestamp.before.max.ms and after.max.ms of the topic"
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID:
		return outbox.ClassTopic, "create the topic, or correct its name in the rows"
	case kerr.TopicAuthorizationFailed:
		return outbox.ClassTopic, "grant WRITE and DESCRIBE on the topic"
	// Written by the leader, or possibly written.
	case kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.NetworkException:
		return outbox.ClassUnknown, ""
	// A failed checksum is retriable by the protocol, but it concerns this batch and the client fails it at once.
	case kerr.CorruptMessage:
		return outbox.ClassRefused, ""
	}
	// Leaders, replicas, storage, throttling: the protocol marks every error that is temporary.
	if code.Retriable {
		return outbox.ClassOutage, ""
	}
	return outbox.ClassRefused, ""
}
