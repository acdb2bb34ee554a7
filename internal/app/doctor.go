package app

import (
	"context"
	"database/sql"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/doctor"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Doctor checks everything that can be wrong before the first message and returns all of it at once. It changes nothing.
func Doctor(ctx context.Context, cfg *config.Config) []server.Finding {
	maps, err := mappings(cfg)
	if err != nil {
		return []server.Finding{{Severity: server.Fault, Subject: "tables", What: err.Error()}}
	}
	return append(doctor.BadTopics(cfg, maps), doctor.Check(ctx, doctor.Parts{
		Config: cfg, Mappings: maps, ServerID: serverID(cfg),
		Server:  func() (server.Config, error) { return serverConfig(cfg.Source) },
		Replica: func() (server.Config, error) { return replicaConfig(cfg) },
		Lease: func(ctx context.Context, db *sql.DB, first string) (server.Finding, error) {
			name, ddl, err := LeaseTable(cfg, first)
			if err != nil {
				return server.Finding{}, err
			}
			found, err := lease.Check(ctx, db, name, ddl)
			if err == nil && found.Severity == server.OK {
				return lease.CheckColumns(ctx, db, name, found)
			}
			return found, err
		},
		Running: func(ctx context.Context) (outbox.Position, error) { return running(ctx, cfg) },
		State:   func() (doctor.State, error) { return peek(ctx, cfg.Checkpoint.Dir) },
		Free:    checkpoint.Free, MinFree: checkpoint.MinFree,
		Broker: broker(cfg).Check,
	})...)
}

// CheckBroker is the part of Doctor about the broker, without topics: it may be called for a configuration whose tables are not chosen yet.
func CheckBroker(ctx context.Context, cfg *config.Config) []server.Finding {
	return broker(cfg).Check(ctx, nil, nil)
}

// Statements are those of findings, in the order in which a client can run them.
func Statements(findings []server.Finding) []string { return doctor.Statements(findings) }

// Running reports whether a relay answers on the socket of the state directory.
func Running(ctx context.Context, cfg *config.Config) bool {
	_, err := running(ctx, cfg)
	return err == nil
}

// running is the checkpoint of the relay that answers on the socket.
func running(ctx context.Context, cfg *config.Config) (outbox.Position, error) {
	c, err := admin.NewClient(cfg.Checkpoint.Socket()).Checkpoint(ctx)
	return c.Position, err
}

// broker is the configured sink as doctor looks at it.
func broker(cfg *config.Config) doctor.Broker {
	section := cfg.Sink.Section().(sinkSection) // of Sinks
	return doctor.Broker{
		Open:    func() (sink.Sink, error) { return newSink(cfg, nil, zap.NewNop(), prometheus.NewRegistry()) },
		MaxBody: section.MaxBody(), Kind: section.Check, ReadBack: cfg.ReadBack.Enabled,
	}
}

func peek(ctx context.Context, dir string) (doctor.State, error) {
	c, err := checkpoint.Peek(ctx, dir, checkpoint.Options{})
	if errors.Is(err, checkpoint.ErrLocked) {
		return doctor.State{InUse: true}, nil
	}
	return doctor.State{Source: c.Source, Checkpoint: c.Checkpoint, At: c.At}, err
}
