package canal

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Two readers with one server id (A13). MariaDB ends the stream of the older one with error 4052. MySQL distinguishes readers by
// a UUID that the client library creates for each stream, and lets both read. But its list of replicas has one line per id: the
// reader that registered last. Each reader registers a unique name there, so the older one finds the other's name.

// randomServerID avoids the small numbers that people give their servers. Two equal ones among a server's replicas are very
// unlikely, and MariaDB reports them.
func randomServerID() uint32 { return 1<<20 + rand.Uint32N(1<<32-1<<20-1) }

// readerName identifies a reader in the server's list of replicas: its host, and a random part.
func readerName() string { return replicaName("canal-outbox") }

// lookerName is the name of a connection that only inspects a file: it is not a second relay.
func lookerName() string { return replicaName("canal-outbox-look") }

func replicaName(program string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host" // the random number alone distinguishes two readers
	}
	return fmt.Sprintf("%s@%.32s-%08x", program, host, rand.Uint32()) // MariaDB takes 60 bytes
}

// sameIDError ends a stream whose server id another reader uses.
type sameIDError struct {
	id    uint32
	cause error
}

// Error implements error.
func (e *sameIDError) Error() string {
	return fmt.Sprintf("another replica or process uses server_id %d on this server, so the server ended our stream: choose "+
		"another source.server_id for one of the two, or stop the other; the next attempt is in a minute (%v)", e.id, e.cause)
}

// Unwrap returns the server's answer.
func (e *sameIDError) Unwrap() error { return e.cause }

func (r *Reader) checkID(ctx context.Context, info server.Info) {
	other, err := otherReader(ctx, r.db, info, r.cfg.ServerID, r.name)
	if err != nil {
		return // if the server does not answer, the stream ends too
	}
	warning := ""
	if other != "" {
		warning = fmt.Sprintf("another replica or process uses server_id %d on this server, under the name %q: choose another "+
			"source.server_id for one of the two, or stop the other", r.cfg.ServerID, other)
	}
	if r.gauge.warn(warning) && warning != "" {
		r.log.Warn(warning)
	}
}

// otherReader returns the name of the reader that registered under the id after us; "" when there is none.
func otherReader(ctx context.Context, db *sql.DB, info server.Info, id uint32, name string) (other string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	replicas, err := info.Replicas(ctx, db)
	for _, r := range replicas {
		if r.ServerID == strconv.FormatUint(uint64(id), 10) && r.Host != name {
			other = cmp.Or(r.Host, "without a name") // an ordinary replica without report_host
		}
	}
	return other, err
}
