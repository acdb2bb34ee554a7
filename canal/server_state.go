package canal

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// serverState is the server as a look found it before a stream.
type serverState struct {
	info      server.Info
	end       outbox.Position // behind the last transaction in its log
	offset    time.Duration   // its clock minus ours
	encrypted bool            // a connection to it is encrypted
}

// look asks the server who it is and where its log ends.
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
