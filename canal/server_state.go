package canal

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// serverState is the server's state before a stream.
type serverState struct {
	info      server.Info
	end       outbox.Position // after the last transaction in its log
	offset    time.Duration   // its clock minus ours
	encrypted bool            // connections to it are encrypted
}

// look reads the server's identity and the end of its log.
func look(ctx context.Context, db *sql.DB) (serverState, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var p serverState
	var err error
	if p.info, err = server.Inspect(ctx, db); err != nil {
		return serverState{}, err
	}
	if p.end, err = p.info.End(ctx, db); err != nil {
		return serverState{}, err
	}
	if p.offset, err = server.ClockOffset(ctx, db); err != nil {
		return serverState{}, fmt.Errorf("compare clocks: %w", err)
	}
	cipher, err := server.Cipher(ctx, db)
	if err != nil {
		return serverState{}, fmt.Errorf("ask for the connection's cipher: %w", err)
	}
	p.encrypted = cipher != ""
	return p, nil
}

const lookTimeout = 15 * time.Second
