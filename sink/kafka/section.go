package kafka

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"go.uber.org/zap"
)

// Section publishes to a Kafka cluster, idempotent and with all acknowledgements.
type Section struct {
	// Brokers are the host:port addresses of some brokers of the cluster.
	Brokers []string `yaml:"brokers"`
	// TLS of the connections; the mode is `disabled` unless it is set. `preferred` does not exist here.
	TLS setting.TLS `yaml:"tls"`
	// SASL is the authentication; none without a mechanism.
	SASL Authentication `yaml:"sasl"`
	// Compression of record batches: `none`, `gzip`, `snappy`, `lz4` or `zstd`. The relay never waits to fill a batch, and small batches hardly
	// shrink.
	Compression string `yaml:"compression"`
	// MaxMessageBytes is the largest record the brokers take (their `message.max.bytes`). Larger rows become FAILED without
	// an attempt.
	MaxMessageBytes setting.Bytes `yaml:"max_message_bytes"`
	// ExactlyOnce sends in transactions: a consumer with `isolation.level=read_committed` gets each message once. It needs Kafka 2.5 and a
	// state topic, see [exactly once](operations/exactly-once.md).
	ExactlyOnce bool `yaml:"exactly_once"`
	// TransactionalID is the name of this relay, and of its standbys, for `exactly_once`: each relay of a cluster needs its own. The state topic
	// is named after it.
	TransactionalID string `yaml:"transactional_id"`
}

// Authentication is the section sasl.
type Authentication struct {
	// Mechanism is one of `plain`, `scram-sha-256`, `scram-sha-512`, `oauthbearer` (a token from `token_file`, or from `token_endpoint`),
	// `aws-msk-iam` (the keys of the environment, a web identity, the container or the instance; no other key of this section).
	Mechanism string `yaml:"mechanism"`
	// User is the account; with `token_endpoint` the client id.
	User string `yaml:"user"`
	// Password of the account; with `token_endpoint` the client secret.
	Password setting.Secret `yaml:"password"`
	// PasswordFile is a file that holds the password instead.
	PasswordFile setting.File `yaml:"password_file"`
	// TokenFile is a file with the token of `oauthbearer`, which another program replaces before the token expires.
	TokenFile setting.File `yaml:"token_file"`
	// TokenEndpoint is the https address that gives tokens for the client id and secret (OAuth 2.0, client credentials). The relay asks for a
	// new token when four fifths of its life have passed. Trusted are the system's authorities and `tls.ca`. Only its host is ever shown.
	TokenEndpoint setting.URL `yaml:"token_endpoint"`
	// Scope is what the token is for, if the endpoint wants it.
	Scope string `yaml:"scope"`
	// Extensions are sent with the token, such as `logicalCluster` for Confluent Cloud.
	Extensions map[string]string `yaml:"extensions"`
}

// NewSection returns the section with its defaults.
func NewSection() *Section {
	return &Section{TLS: setting.TLS{Mode: "disabled"}, Compression: "none", MaxMessageBytes: 1_000_012, TransactionalID: "canal_outbox"}
}

// Validate reports everything that is wrong with the section.
func (s *Section) Validate(r setting.Report) {
	r.HostPorts("brokers", s.Brokers)
	r.TLS("tls", s.TLS, "disabled", "required", "verify-ca", "verify-identity")
	r.OneOf("compression", s.Compression, "none", "gzip", "snappy", "lz4", "zstd")
	// Below a kilobyte hardly a record fits; above a gigabyte the protocol's own 32-bit sizes end.
	r.Size("max_message_bytes", s.MaxMessageBytes, 1<<10, 1<<30)
	s.SASL.validate(r.At("sasl"))
	if s.ExactlyOnce {
		r.Required("transactional_id", s.TransactionalID)
		r.Size("max_message_bytes", s.MaxMessageBytes, ledger.LeastRecordBytes, 1<<30)
		if fault := topicFault(stateTopic(s.TransactionalID)); fault != "" {
			r.Add("transactional_id", s.TransactionalID, "must be part of a topic name: %s", fault)
		}
	}
}

// MaxBody is the size in bytes above which a body is refused.
func (s *Section) MaxBody() setting.Bytes { return s.MaxMessageBytes }

// TopicFault returns why a topic cannot have this name; "" when it can.
func (*Section) TopicFault(name string) string { return topicFault(name) }

// Proves reports whether the sink is a sink.Prover.
func (s *Section) Proves() bool { return s.ExactlyOnce }

// Open returns the sink. It does no I/O except reading the files of the section tls: Probe reports whether the cluster can be
// reached.
func (s *Section) Open(limits sink.Limits, log *zap.Logger, reg prometheus.Registerer) (sink.Sink, error) {
	plain, err := s.open(limits, log, reg)
	if err != nil || !s.ExactlyOnce {
		return plain, err
	}
	return exactly(plain, s.TransactionalID, &brokers{plain, s.TransactionalID}, usualBounds), nil
}

// OpenOn is Open with exactly_once on a model of the brokers.
func (s *Section) OpenOn(c Coordinator, b Bounds, limits sink.Limits, log *zap.Logger, reg prometheus.Registerer) (*Exactly, error) {
	plain, err := s.open(limits, log, reg)
	if err != nil {
		return nil, err
	}
	return exactly(plain, s.TransactionalID, c, b), nil
}

func (s *Section) open(limits sink.Limits, log *zap.Logger, reg prometheus.Registerer) (*Sink, error) {
	// The database's TLS modes mean the same for any server; an empty address leaves the name to each connection.
	var c server.Config
	files := server.TLSFiles{CA: s.TLS.CA, Cert: s.TLS.Cert, Key: s.TLS.Key}
	if err := c.SetTLS(server.TLSMode(cmp.Or(s.TLS.Mode, "disabled")), files); err != nil {
		return nil, fmt.Errorf("sink.kafka.tls: %w", err)
	}
	cfg := config{
		brokers: s.Brokers, codec: codecs[cmp.Or(s.Compression, "none")],
		maxBytes: cmp.Or(int(s.MaxMessageBytes), int(NewSection().MaxMessageBytes)), limits: limits, times: usual,
	}
	if c.TLS != nil {
		cfg.tls, cfg.logins.cert = c.TLS.Config, s.TLS.Cert
	}
	cfg.sasl, cfg.logins.secret, cfg.logins.refused = s.SASL.mechanism(s.TLS.CA)
	return open(cfg, log, reg)
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// limits in time.
type times struct {
	// delivery is the time after which a message that no broker can have stored is returned. It does not bound a message on the
	// wire: that one is kept until its answer (or Close), because sending it again would lose the protection against duplicates.
	delivery time.Duration
	dial     time.Duration // of one connection
	close    time.Duration // of Close after its context has ended: the client library fails what is on the wire
}

var usual = times{delivery: 30 * time.Second, dial: 10 * time.Second, close: 5 * time.Second}

// config is a checked section in the client library's terms. Everything else is fixed: acks=all, idempotent, no linger. The record
// time is the time of the send (an old created_at could exceed retention or a broker's age limit at once).
type config struct {
	brokers  []string
	tls      func() *tls.Config // of a new connection; nil: none. Without a server name it is the host of each broker
	sasl     sasl.Mechanism     // nil: none
	logins   logins
	codec    kgo.CompressionCodec
	maxBytes int // of a record batch before compression, and so of a message with its key and headers
	// limits are the caller's own. The client's buffers are a quarter larger, so that they are never full first; beyond them a
	// message gets ClassOutage.
	limits sink.Limits
	times  times
}

// options translates the configuration for the producer.
func (c config) options(w *wire) []kgo.Opt {
	return append(c.connection(w),
		kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(int32(c.maxBytes)),
		kgo.BrokerMaxWriteBytes(int32(min(max(100<<20, c.maxBytes+1<<20), 1<<30))),
		kgo.ProducerBatchCompression(c.codec),
		kgo.MaxBufferedRecords(c.limits.Messages+c.limits.Messages/4+16),
		kgo.MaxBufferedBytes(c.limits.Bytes+c.limits.Bytes/4+c.maxBytes),
		kgo.RecordDeliveryTimeout(c.times.delivery),
		// Enough for a broker that does not have its partitions yet. More would hold messages of a missing topic, and with them
		// the room in flight, although the pipeline suspends the topic and tries again.
		kgo.UnknownTopicRetries(2),
		// The library may leave a message that was sent while the cluster refused a producer id until the topic's next message or
		// the next metadata refresh; the default for that is 5 min.
		kgo.MetadataMaxAge(15*time.Second),
	)
}

// connection is how the cluster is reached, for the producer and, without a wire, for the reader.
func (c config) connection(w *wire) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.brokers...),
		kgo.ClientID("canal-outbox"),
		kgo.DisableClientMetrics(), // their last push would delay Close by up to a second
		// With the default of 5 s a new topic or a moved leader would be unknown for that time.
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	may := c.limits.May
	if w == nil { // a reader publishes nothing
		may = nil
	}
	opts = append(opts, kgo.Dialer(fence{c.tls, may, w, c.times.dial}.dial), kgo.WithHooks(c.logins))
	if c.sasl != nil {
		opts = append(opts, kgo.SASL(c.sasl))
	}
	return opts
}
