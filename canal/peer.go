package canal

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// peer is the server as it was found before a stream.
type peer struct {
	info      server.Info
	end       outbox.Position // behind the last transaction in its log
	offset    time.Duration   // its clock minus ours
	encrypted bool            // connections to it are
}

// look asks the server who it is and where its log ends.
func look(ctx context.Context, db *sql.DB) (peer, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var p peer
	var err error
	if p.info, err = server.Inspect(ctx, db); err != nil {
		return peer{}, err
	}
	if p.end, err = p.info.End(ctx, db); err != nil {
		return peer{}, err
	}
	if p.offset, err = server.ClockOffset(ctx, db); err != nil {
		return peer{}, fmt.Errorf("compare clocks: %w", err)
	}
	cipher, err := server.Cipher(ctx, db)
	if err != nil {
		return peer{}, fmt.Errorf("ask for the connection's cipher: %w", err)
	}
	p.encrypted = cipher != ""
	return p, nil
}

const lookTimeout = 15 * time.Second

// randomServerID avoids the small numbers that people give their servers. Two equal ones among a server's replicas are
// less likely than anything else that can go wrong, and MariaDB reports them.
func randomServerID() uint32 { return 1<<20 + rand.Uint32N(1<<32-1<<20-1) }
