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

	// ServerID is how this reader shows itself to the server; it must be unique among its replicas. 0: a random one per
	// start, checked against the server's list of replicas.
	ServerID  uint32
	Heartbeat time.Duration // of the server when the log is quiet; default 1 s. A peer silent for three is given up.
	// MaxTransactionBytes bounds what is held of one transaction; default 64 MiB. Beyond it the transaction is deferred.
	MaxTransactionBytes int

	// Recorded returns the source of the last checkpoint and that checkpoint; a zero ID when nothing is recorded yet.
	Recorded func() (server.ID, outbox.Position)
	// Schemas keeps column versions over restarts; nil: they are read anew at each start.
	Schemas SchemaStore

	// Noticed is called when a mapped table was dropped, created, truncated or renamed (done), with the server's time of the statement. It is called
	// from the stream's goroutine and must not block; nil: the log line is enough.
	Noticed func(at time.Time, table, done string)

	// MinBackoff and MaxBackoff bound the wait between two attempts to connect; defaults 250 ms and 10 s.
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

// SchemaStore keeps the column versions of tables, one blob per table. checkpoint.Store implements it.
type SchemaStore interface {
	// SaveSchema returns when the blob is durable. An empty blob removes the table's.
	SaveSchema(table string, blob []byte) error
	// Schemas returns all blobs by table.
	Schemas() (map[string][]byte, error)
}

// Handler receives what the reader finds. Its methods are called one at a time, from Run's goroutine or, while a stream is
// open, from the stream's.
type Handler interface {
	// Connected opens a stream: the next transaction offered is the first behind from. Its GTID set is always the whole one
	// where the server has GTIDs: the first stream of a Run that began at a mere file and offset brings the set that
	// belongs there, and whoever counts on from it must take it over. Rows up to windowEnd, the server's end
	// at this moment, may have been published before. failover means that the server is another one with the same history:
	// then only the GTID set of from is a position on it. An error ends the attempt.
	Connected(ctx context.Context, from, windowEnd outbox.Position, id server.ID, failover bool) error
	// Offer hands over one transaction, in log order, with ownership. It may block; that is the back-pressure on the
	// server. After an error the transaction counts as not offered and comes again with the next stream.
	Offer(ctx context.Context, txn *outbox.Txn) error
	// Idle says that the log ends at pos for now and that all before it was offered.
	Idle(pos outbox.Position)
	// Gap reports that part of the log cannot be read. It returns the position to go on from, which the handler has made durable;
	// an error ends the attempt.
	Gap(ctx context.Context, gap outbox.Gap) (resume outbox.Position, err error)
	// Disconnected ends what Connected opened.
	Disconnected(err error)
}
