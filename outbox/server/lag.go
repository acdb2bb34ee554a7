package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// errNoReplica is the answer of a server that follows no other.
var errNoReplica = errors.New("it is no replica: it follows no other server")

// ReplicaLag is how many seconds a replica is behind its primary, by its own account (Seconds_Behind_Source); of several primaries the one
// that is furthest away counts. following is false when it does not follow at present. It needs REPLICATION CLIENT (MariaDB: REPLICA
// MONITOR).
func ReplicaLag(ctx context.Context, db Querier) (lag time.Duration, following bool, err error) {
	rows, err := Show(ctx, db, "SHOW REPLICA STATUS")
	if Code(err) == 1064 { // PARSE_ERROR: MySQL before 8.0.22
		rows, err = Show(ctx, db, "SHOW SLAVE STATUS")
	}
	if err == nil && len(rows) == 0 {
		err = errNoReplica
	}
	if err != nil {
		return 0, false, fmt.Errorf("ask the replica how far it is behind: %w", err)
	}
	for _, row := range rows {
		text := row["seconds_behind_source"]
		if text == "" {
			text = row["seconds_behind_master"]
		}
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, false, nil // NULL: a thread of the replication is stopped
		}
		lag = max(lag, time.Duration(seconds)*time.Second)
	}
	return lag, true, nil
}
