package app

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq"
	"github.com/canal-outbox/canal-outbox/sink/stdout"
)

// serverConfig translates the source. The error is of the files it names.
func serverConfig(s config.Source) (server.Config, error) {
	c := server.Config{Address: s.Address, User: s.User, Password: s.Password.Reveal()}
	if err := c.SetTLS(server.TLSMode(s.TLS.Mode), server.TLSFiles{CA: s.TLS.CA, Cert: s.TLS.Cert, Key: s.TLS.Key}); err != nil {
		return server.Config{}, fmt.Errorf("source.tls: %w", err)
	}
	return c, nil
}

// serverIDs are the ids that are made up: above what people number their servers with, below the sign bit.
const firstServerID, serverIDs = 1 << 30, 1 << 30

// serverID is the configured one, or one that stays the same over restarts on this host and differs between relays: made
// of who reads what, where, into which directory.
func serverID(cfg *config.Config) uint32 {
	if cfg.Source.ServerID != 0 {
		return cfg.Source.ServerID
	}
	dir, err := filepath.Abs(cfg.Checkpoint.Dir)
	if err != nil {
		dir = cfg.Checkpoint.Dir // without a working directory the text itself must do
	}
	host, err := os.Hostname()
	if err != nil {
		host = "" // the directory alone tells two relays of one machine apart
	}
	h := fnv.New32a()
	h.Write([]byte(strings.Join([]string{cfg.Source.Address, cfg.Source.User, host, dir}, "\x00"))) // hash.Hash never fails
	return firstServerID + h.Sum32()%serverIDs
}

// mappings translates the tables. The configuration was validated, so an error is a fault of this program.
func mappings(tables []config.Table) ([]table.Mapping, error) {
	var all []table.Mapping
	for _, t := range tables {
		m, err := table.Preset(t.Preset)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", t.Name, err)
		}
		m.Schema, m.Name, _ = strings.Cut(t.Name, ".")
		m.TimeZone = t.TimeZone
		for name, column := range t.Columns {
			role, err := table.ParseColumn(name)
			if err != nil {
				return nil, fmt.Errorf("table %s: %w", t.Name, err)
			}
			m.Set(role, column)
		}
		for name, code := range t.Codes {
			status, err := config.ParseStatus(name)
			if err != nil {
				return nil, fmt.Errorf("table %s: %w", t.Name, err)
			}
			m.Codes[status] = code
		}
		all = append(all, m)
	}
	return all, nil
}

// newSink makes the configured sink. None does I/O before its first message.
func newSink(cfg *config.Config, log *zap.Logger, reg prometheus.Registerer) (sink.Sink, error) {
	switch s := cfg.Sink; {
	case s.Kafka != nil:
		return newKafka(*s.Kafka, cfg.Pipeline, log, reg)
	case s.RocketMQ != nil:
		return rocketmq.New(rocketmq.Config{
			NameServers: s.RocketMQ.NameServers, Group: s.RocketMQ.Group,
			AccessKey: s.RocketMQ.AccessKey, SecretKey: s.RocketMQ.SecretKey.Reveal(),
			MaxMessageBytes: int(s.RocketMQ.MaxMessageBytes), StrictDurability: s.RocketMQ.Durability == "strict",
		}, log, reg)
	case s.Stdout != nil:
		return stdout.New(os.Stdout), nil
	}
	return nil, errors.New("no sink is configured")
}

func newKafka(k config.Kafka, limits config.Pipeline, log *zap.Logger, reg prometheus.Registerer) (sink.Sink, error) {
	// The database's TLS modes mean the same for any server; an empty address leaves the name to each connection.
	var c server.Config
	if err := c.SetTLS(server.TLSMode(cmp.Or(k.TLS.Mode, "disabled")), server.TLSFiles{CA: k.TLS.CA, Cert: k.TLS.Cert, Key: k.TLS.Key}); err != nil {
		return nil, fmt.Errorf("sink.kafka.tls: %w", err)
	}
	return kafka.New(kafka.Config{
		Brokers: k.Brokers, TLS: c.TLS,
		SASL:        kafka.SASL{Mechanism: strings.ToUpper(k.SASL.Mechanism), User: k.SASL.User, Password: k.SASL.Password.Reveal()},
		Compression: k.Compression, MaxMessageBytes: int(k.MaxMessageBytes),
		MaxInFlight: limits.MaxInFlight, MaxInFlightBytes: int(limits.MaxInFlightBytes),
	}, log, reg)
}

// sinkKind names the configured sink.
func sinkKind(cfg *config.Config) string {
	switch {
	case cfg.Sink.Kafka != nil:
		return "kafka"
	case cfg.Sink.RocketMQ != nil:
		return "rocketmq"
	}
	return "stdout"
}
