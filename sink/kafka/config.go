package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Config says which cluster to publish to and how. Everything else is fixed: acks=all, idempotent, no linger. The record time is
// the time of the send (an old created_at could exceed retention or a broker's age limit at once).
type Config struct {
	// Brokers are host:port of some brokers; the client discovers the others. At least one.
	Brokers []string
	// ClientID identifies this process in the brokers' logs and quotas; "canal-outbox" when empty.
	ClientID string
	// TLS encrypts the connections when it is set. An empty ServerName means the host of each broker.
	TLS *tls.Config
	// SASL is used when its Mechanism is set.
	SASL SASL
	// Compression of record batches: none, gzip, snappy, lz4 or zstd; none when empty. The relay never waits to fill a batch.
	// Small batches hardly shrink, and compression delays every acknowledgement.
	Compression string
	// MaxMessageBytes is the largest record batch, and so the largest message with its key and headers, before
	// compression; 1,000,012 when zero, a little below the broker's own default. It should not be above the
	// max.message.bytes of the topics: a batch that only the broker refuses is sent again message by message.
	MaxMessageBytes int
	// MaxInFlight and MaxInFlightBytes are the caller's own limits on messages without a result. The client's buffers are a
	// quarter larger, so that they are never full first; beyond them a message gets ClassOutage. 10,000 and 64 MiB when zero.
	MaxInFlight      int
	MaxInFlightBytes int
	// DeliveryTimeout is the time after which a message that no broker can have stored is returned; 30 s when zero. It does not
	// bound a message on the wire: that one is kept until its answer (or Close), because sending it again would lose the
	// protection against duplicates.
	DeliveryTimeout time.Duration
	// May is sink.Limits.May: while it is false nothing is written to a connection.
	May func() bool
}

// SASL is how the client authenticates.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; "" for none
	User      string
	Password  string
}

// withDefaults sets the defaults and reports every fault at once.
func (c Config) withDefaults() (Config, error) {
	var faults []error
	if len(c.Brokers) == 0 {
		faults = append(faults, errors.New("brokers: name at least one broker as host:port"))
	}
	if c.ClientID == "" {
		c.ClientID = "canal-outbox"
	}
	for _, number := range []struct {
		name  string
		value *int
		unset int
		low   int
		high  int
	}{
		{"max_message_bytes", &c.MaxMessageBytes, 1000012, 1024, 1 << 30}, // the client's own bounds of a batch
		{"max_in_flight", &c.MaxInFlight, 10000, 1, 1 << 24},
		{"max_in_flight_bytes", &c.MaxInFlightBytes, 64 << 20, 1024, 1 << 40},
	} {
		if *number.value == 0 {
			*number.value = number.unset
		}
		if *number.value < number.low || *number.value > number.high {
			faults = append(faults, fmt.Errorf("%s: %d is not between %d and %d", number.name, *number.value, number.low, number.high))
		}
	}
	if c.DeliveryTimeout == 0 {
		c.DeliveryTimeout = 30 * time.Second
	}
	if c.DeliveryTimeout < time.Second {
		faults = append(faults, fmt.Errorf("delivery_timeout: %s is less than 1s, the least the client library takes", c.DeliveryTimeout))
	}
	return c, errors.Join(faults...)
}

// options translates the configuration for the client library.
func (c Config) options(w *wire) ([]kgo.Opt, error) {
	compression, err1 := c.codec()
	opts, err2 := c.connection(w)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return append(opts,
		kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)),
		kgo.BrokerMaxWriteBytes(int32(min(max(100<<20, c.MaxMessageBytes+1<<20), 1<<30))),
		kgo.ProducerBatchCompression(compression),
		kgo.MaxBufferedRecords(c.MaxInFlight+c.MaxInFlight/4+16),
		kgo.MaxBufferedBytes(c.MaxInFlightBytes+c.MaxInFlightBytes/4+c.MaxMessageBytes),
		kgo.RecordDeliveryTimeout(c.DeliveryTimeout),
		// Enough for a broker that does not have its partitions yet. More would hold messages of a missing topic, and with them
		// the room in flight, although the pipeline suspends the topic and tries again.
		kgo.UnknownTopicRetries(2),
		// The library may leave a message that was sent while the cluster refused a producer id until the topic's next message or
		// the next metadata refresh; the default for that is 5 min.
		kgo.MetadataMaxAge(15*time.Second),
	), nil
}

// connection is how the cluster is reached, for the producer and, without a wire, for the reader.
func (c Config) connection(w *wire) ([]kgo.Opt, error) {
	mechanism, err := c.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.DisableClientMetrics(), // their last push would delay Close by up to a second
		// With the default of 5 s a new topic or a moved leader would be unknown for that time.
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	switch {
	case w != nil:
		opts = append(opts, kgo.Dialer(fence{c.TLS, c.May, w}.dial))
	case c.TLS != nil:
		opts = append(opts, kgo.DialTLSConfig(c.TLS))
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

func (c Config) codec() (kgo.CompressionCodec, error) {
	switch c.Compression {
	case "", "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("compression: %q is not one of none, gzip, snappy, lz4, zstd", c.Compression)
}

func (s SASL) mechanism() (sasl.Mechanism, error) {
	if s.Mechanism == "" {
		return nil, nil
	}
	if s.User == "" {
		return nil, fmt.Errorf("sasl.user: %s needs a user name", s.Mechanism)
	}
	switch s.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("sasl.mechanism: %q is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512", s.Mechanism)
}
