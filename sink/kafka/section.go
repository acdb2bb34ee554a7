package kafka

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/prometheus/client_golang/prometheus"
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
	// Compression of record batches: `none`, `gzip`, `snappy`, `lz4` or `zstd`. The relay never waits to fill a batch, and
	// small batches hardly shrink.
	Compression string `yaml:"compression"`
	// MaxMessageBytes is the largest record the brokers take (their `message.max.bytes`). Larger rows become FAILED without
	// an attempt.
	MaxMessageBytes setting.Bytes `yaml:"max_message_bytes"`
}

// Authentication is the section sasl.
type Authentication struct {
	// Mechanism is one of `plain`, `scram-sha-256`, `scram-sha-512`.
	Mechanism string `yaml:"mechanism"`
	// User is the account.
	User string `yaml:"user"`
	// Password of the account.
	Password setting.Secret `yaml:"password"`
	// PasswordFile is a file that holds the password instead.
	PasswordFile string `yaml:"password_file"`
}

// NewSection returns the section with its defaults.
func NewSection() *Section {
	return &Section{TLS: setting.TLS{Mode: "disabled"}, Compression: "none", MaxMessageBytes: 1_000_012}
}

// Validate reports everything that is wrong with the section.
func (s *Section) Validate(r setting.Report) {
	r.HostPorts("brokers", s.Brokers)
	r.TLS("tls", s.TLS, "disabled", "required", "verify-ca", "verify-identity")
	r.OneOf("compression", s.Compression, "none", "gzip", "snappy", "lz4", "zstd")
	// Below a kilobyte hardly a record fits; above a gigabyte the protocol's own 32-bit sizes end.
	r.Size("max_message_bytes", s.MaxMessageBytes, 1<<10, 1<<30)
	r = r.At("sasl")
	if s.SASL.Mechanism == "" {
		if s.SASL.User != "" || s.SASL.Password != "" {
			r.Add("mechanism", "", "is missing: write plain, scram-sha-256 or scram-sha-512")
		}
		return
	}
	r.OneOf("mechanism", s.SASL.Mechanism, "plain", "scram-sha-256", "scram-sha-512")
	r.Required("user", s.SASL.User)
	if s.SASL.Password == "" {
		r.Add("password", "", "is missing: set it, or password_file")
	}
}

// MaxBody is the size in bytes above which a body is refused.
func (s *Section) MaxBody() setting.Bytes { return s.MaxMessageBytes }

// TopicFault returns why a topic cannot have this name; "" when it can.
func (*Section) TopicFault(name string) string { return topicFault(name) }

// Open returns the sink. It does no I/O except reading the files of the section tls.
func (s *Section) Open(limits sink.Limits, log *zap.Logger, reg prometheus.Registerer) (sink.Sink, error) {
	// The database's TLS modes mean the same for any server; an empty address leaves the name to each connection.
	var c server.Config
	files := server.TLSFiles{CA: s.TLS.CA, Cert: s.TLS.Cert, Key: s.TLS.Key}
	if err := c.SetTLS(server.TLSMode(cmp.Or(s.TLS.Mode, "disabled")), files); err != nil {
		return nil, fmt.Errorf("sink.kafka.tls: %w", err)
	}
	return New(Config{
		Brokers: s.Brokers, TLS: c.TLS,
		SASL:        SASL{Mechanism: strings.ToUpper(s.SASL.Mechanism), User: s.SASL.User, Password: s.SASL.Password.Reveal()},
		Compression: s.Compression, MaxMessageBytes: int(s.MaxMessageBytes),
		MaxInFlight: limits.Messages, MaxInFlightBytes: limits.Bytes, May: limits.May,
	}, log, reg)
}
