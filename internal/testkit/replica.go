package testkit

import (
	"context"
	"fmt"
)

// replicationSQL are the statements that differ by flavor, and by release of MySQL.
var replicationSQL = map[Flavor]struct {
	source, start  string
	stop           []string
	position, wait string
}{
	MySQL: {
		source: "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='root', " +
			"SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1",
		start:    "START REPLICA",
		stop:     []string{"STOP REPLICA", "RESET REPLICA ALL"},
		position: "SELECT @@GLOBAL.gtid_executed",
		wait:     "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 1)",
	},
	MySQL57: {
		source:   "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', MASTER_AUTO_POSITION=1, MASTER_CONNECT_RETRY=1",
		start:    "START SLAVE",
		stop:     []string{"STOP SLAVE", "RESET SLAVE ALL"},
		position: "SELECT @@GLOBAL.gtid_executed",
		wait:     "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 1)",
	},
	MariaDB: {
		source: "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', " +
			"MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1",
		start:    "START SLAVE",
		stop:     []string{"STOP SLAVE", "RESET SLAVE ALL"},
		position: "SELECT @@GLOBAL.gtid_binlog_pos",
		wait:     "SELECT MASTER_GTID_WAIT(?, 1)",
	},
}

// speaks is the key of replicationSQL.
func (d *Database) speaks() Flavor {
	if d.Before(8, 0) {
		return MySQL57
	}
	return d.Flavor
}

// ReplicateFrom makes this new, empty server a replica of another of the same flavor, by GTID and from the first
// transaction on, so the primary must not have purged any log. The replica writes its own binary log and accepts writes;
// a test that wants it read-only says so in the options.
func (d *Database) ReplicateFrom(ctx context.Context, primary *Database) error {
	statements := replicationSQL[d.speaks()]
	for _, statement := range []string{fmt.Sprintf(statements.source, primary.Port()), statements.start} {
		if _, err := d.root.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("replicate from %s: %w", primary.Addr(), err)
		}
	}
	return nil
}

// CatchUp waits until this replica has applied all that the primary had committed at the time of the call.
func (d *Database) CatchUp(ctx context.Context, primary *Database) error {
	statements := replicationSQL[d.speaks()]
	var position string
	if err := primary.root.QueryRowContext(ctx, statements.position).Scan(&position); err != nil {
		return fmt.Errorf("position of the primary: %w", err)
	}
	for {
		var timedOut int // 0: applied, anything else: not yet
		if err := d.root.QueryRowContext(ctx, statements.wait, position).Scan(&timedOut); err != nil {
			return fmt.Errorf("wait for the replica to apply %s: %w", position, err)
		}
		if timedOut == 0 {
			return nil
		}
	}
}

// Promote ends the replication for good: the server stands alone, as after a failover.
func (d *Database) Promote(ctx context.Context) error {
	for _, statement := range replicationSQL[d.speaks()].stop {
		if _, err := d.root.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("promote the replica: %w", err)
		}
	}
	return nil
}
