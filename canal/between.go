package canal

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Between reads the transactions that end after from and at or before to, on its own connection, and calls each in log order.
// Both positions need file and offset; from must be a transaction end. It changes nothing: cfg.Schemas is only read. Rows that
// the reader would leave to the sweep are in Txn.Deferred. On MariaDB the relays' own writes are left out. It returns nil at to
// or at the end of the log, else the error of each or of ctx.
func Between(ctx context.Context, cfg Config, from, to outbox.Position, each func(*outbox.Txn) error) (err error) {
	cfg.Heartbeat, cfg.Schemas = lookHeartbeat, readOnly{cfg.Schemas}
	r := New(cfg, nil, zap.NewNop(), prometheus.NewRegistry())
	if r.db, err = server.Open(cfg.Server, nil, server.Session{MaxConns: 2}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.db.Close()) }()
	p, err := look(ctx, r.db)
	if err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	r.tables.setFold(p.info.CaseFolding != 0)
	r.tables.schemas.db, r.tables.schemas.info = r.db, p.info
	start := outbox.Position{File: from.File, Offset: from.Offset}
	if err := r.tables.schemas.connect(ctx, r.tables.list, start, outbox.Position{}); err != nil {
		return err
	}
	last := outbox.Position{File: to.File, Offset: to.Offset}
	part := &part{each: func(txn *outbox.Txn) (more bool) {
		end := outbox.Position{File: txn.End.File, Offset: txn.End.Offset}
		if end.Compare(last) <= 0 {
			err = each(txn)
		}
		return err == nil && end.Compare(last) < 0
	}}
	part.stream = r.newStream(ctx, part, start)
	part.stream.name, part.stream.skip = lookerName(), start
	if ended := part.stream.run(r.cfg, p, start, part); !errors.Is(ended, errPartRead) {
		return fmt.Errorf("read the log behind %s: %w", start, ended)
	}
	return err
}

var errPartRead = errors.New("the part of the log was read")

// part is the receiver of a stream that ends early, at the end of the log at the latest, and of that stream's events.
type part struct {
	stream *stream
	each   func(*outbox.Txn) (more bool)
	ended  bool
}

// HandleEvent implements replication.EventHandler.
func (p *part) HandleEvent(e *replication.BinlogEvent) error {
	if err := p.stream.handle(e); err != nil {
		return err
	}
	if p.ended {
		return errPartRead
	}
	return nil
}

// Offer implements receiver.
func (p *part) Offer(_ context.Context, txn *outbox.Txn) error {
	p.ended = !p.each(txn)
	return nil
}

// Idle implements receiver: the log has ended.
func (p *part) Idle(outbox.Position) { p.ended = true }

// readOnly reads the relay's column versions and stores none.
type readOnly struct{ SchemaStore }

// Save implements SchemaStore.
func (readOnly) Save(string, []byte) error { return nil }

// All implements SchemaStore.
func (s readOnly) All() (map[string][]byte, error) {
	if s.SchemaStore == nil {
		return map[string][]byte{}, nil
	}
	return s.SchemaStore.All()
}
