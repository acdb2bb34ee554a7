package canal

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Config says what to read and how. Zero values take the defaults.
type Config struct {
	Server server.Config  // address and account; the account needs REPLICATION SLAVE and REPLICATION CLIENT
	Tables []*table.Table // the mapped tables

	// ServerID identifies this reader to the server; it must be unique among the server's replicas. 0: a random one per start,
	// checked against the server's list of replicas.
	ServerID  uint32
	Heartbeat time.Duration // the server's heartbeat period on an idle log; default 1 s. A server that is silent for three periods is disconnected.
	// MaxTransactionBytes bounds the memory for one transaction; default 64 MiB. A larger transaction is deferred.
	MaxTransactionBytes int

	// Recorded returns the source of the last checkpoint and that checkpoint; a zero ID when none is recorded.
	Recorded func() (server.ID, outbox.Position)
	// Descends proves that a server without GTIDs is a copy of the recorded one: the reader then reports a gap of cause failover. nil: nothing
	// can, and such a server is foreign. An error is tried again.
	Descends func(ctx context.Context, recorded server.ID, checkpoint outbox.Position, now server.ID) (why string, descends bool, err error)
	// Schemas keeps column versions over restarts; nil: they are read again at each start.
	Schemas SchemaStore

	// Noticed is called when a mapped table was dropped, created, truncated or renamed (done), with the server's time of the
	// statement. The stream's goroutine calls it; it must not block. nil: only a log line is written.
	Noticed func(at time.Time, table, done string)

	// MinBackoff and MaxBackoff bound the wait between two connection attempts; defaults 250 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration
}

const (
	defaultHeartbeat       = time.Second
	defaultTransactionSize = 64 << 20
	defaultMinBackoff      = 250 * time.Millisecond
	defaultMaxBackoff      = 10 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Heartbeat <= 0 {
		c.Heartbeat = defaultHeartbeat
	}
	if c.MaxTransactionBytes <= 0 {
		c.MaxTransactionBytes = defaultTransactionSize
	}
	if c.MinBackoff <= 0 {
		c.MinBackoff = defaultMinBackoff
	}
	if c.MaxBackoff <= 0 {
		c.MaxBackoff = defaultMaxBackoff
	}
	if c.Recorded == nil {
		c.Recorded = func() (server.ID, outbox.Position) { return server.ID{}, outbox.Position{} }
	}
	return c
}

// SchemaStore keeps the column versions of tables, one blob per table. checkpoint.Schemas implements it.
type SchemaStore interface {
	// Save returns when the blob is durable. An empty blob removes the table's entry.
	Save(table string, blob []byte) error
	// All returns all blobs by table.
	All() (map[string][]byte, error)
}

// Handler receives what the reader reads. Its methods are called one at a time, from Run's goroutine or, while a stream is open,
// from the stream's.
type Handler interface {
	// Connected opens a stream: the next transaction offered is the first one after from. Where the server has GTIDs, the GTID
	// set of from is always complete: when a Run began at a file and offset alone, its first stream brings the set of that
	// position, and the handler must use it from then on. Rows up to windowEnd, the current end of the server's log, may have
	// been published before. failover means that another server with the same history answers: then only the GTID set of from is
	// a position on it. An error ends the attempt.
	Connected(ctx context.Context, from, windowEnd outbox.Position, id server.ID, failover bool) error
	// Offer passes one transaction, in log order, and its ownership. It may block; that is the back-pressure on the server. After
	// an error the transaction counts as not offered and comes again with the next stream.
	Offer(ctx context.Context, txn *outbox.Txn) error
	// Idle reports that the log ends at pos for now and that everything before it was offered.
	Idle(pos outbox.Position)
	// Gap reports that part of the log cannot be read. It returns the position to continue from, which the handler has stored
	// durably; an error ends the attempt.
	Gap(ctx context.Context, gap outbox.Gap) (resume outbox.Position, err error)
	// Disconnected ends what Connected opened.
	Disconnected(err error)
}
