package testkit

import (
	"context"
	"fmt"
)

// replicationSQL are the statements that differ by flavor, and by release of MySQL.
var replicationSQL = map[Flavor]struct {
	source, byPosition, start string
	stop                      []string
	position, wait            string
	waitAt                    string // for a file and an offset; not NULL and not negative: applied
}{
	MySQL: {
		source: "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='root', " +
			"SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1",
		byPosition: "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='root', SOURCE_AUTO_POSITION=0, " +
			"SOURCE_LOG_FILE='%s', SOURCE_LOG_POS=%d, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1",
		start:    "START REPLICA",
		stop:     []string{"STOP REPLICA", "RESET REPLICA ALL"},
		position: "SELECT @@GLOBAL.gtid_executed",
		wait:     "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 1)",
		waitAt:   "SELECT COALESCE(SOURCE_POS_WAIT(?, ?, 1), -2)",
	},
	MySQL57: {
		source: "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', MASTER_AUTO_POSITION=1, MASTER_CONNECT_RETRY=1",
		byPosition: "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', MASTER_AUTO_POSITION=0, " +
			"MASTER_LOG_FILE='%s', MASTER_LOG_POS=%d, MASTER_CONNECT_RETRY=1",
		start:    "START SLAVE",
		stop:     []string{"STOP SLAVE", "RESET SLAVE ALL"},
		position: "SELECT @@GLOBAL.gtid_executed",
		wait:     "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 1)",
		waitAt:   "SELECT COALESCE(MASTER_POS_WAIT(?, ?, 1), -2)",
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

// hasGTIDs reports whether replication goes by GTIDs.
func (d *Database) hasGTIDs(ctx context.Context) (has bool, err error) {
	if d.Flavor == MariaDB {
		return true, nil
	}
	return has, d.root.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_mode = 'ON'").Scan(&has)
}

// ReplicateFrom makes this new, empty server a replica of another of the same flavor, from the first transaction on, so the primary must not
// have purged any log; by GTID, unless the primary has none. The replica writes its own binary log and accepts writes; a test that wants it
// read-only says so in the options.
func (d *Database) ReplicateFrom(ctx context.Context, primary *Database) error {
	logs, err := primary.BinaryLogs(ctx)
	if err != nil {
		return err
	}
	return d.replicate(ctx, primary, logs[0], 4)
}

// Rejoin makes a server that was the primary a replica of the one that was promoted in its place, and to which nothing was written since.
func (d *Database) Rejoin(ctx context.Context, primary *Database) error {
	if d.Flavor == MariaDB {
		if _, err := d.root.ExecContext(ctx, "SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos"); err != nil {
			return fmt.Errorf("rejoin: %w", err)
		}
	}
	file, offset, err := primary.logEnd(ctx)
	if err != nil {
		return err
	}
	return d.replicate(ctx, primary, file, offset)
}

// replicate starts the replication; file and offset count without GTIDs.
func (d *Database) replicate(ctx context.Context, primary *Database, file string, offset uint64) error {
	statements := replicationSQL[d.speaks()]
	gtids, err := primary.hasGTIDs(ctx)
	if err != nil {
		return err
	}
	source := fmt.Sprintf(statements.source, primary.Port())
	if !gtids {
		source = fmt.Sprintf(statements.byPosition, primary.Port(), file, offset)
	}
	for _, statement := range []string{source, statements.start} {
		if _, err := d.root.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("replicate from %s: %w", primary.Addr(), err)
		}
	}
	return nil
}

// logEnd is the file and the offset at which the binary log ends. Package server, whose tests use this one, cannot be asked here.
func (d *Database) logEnd(ctx context.Context) (file string, offset uint64, err error) {
	statement := "SHOW MASTER STATUS"
	if d.Flavor == MySQL && !d.Before(8, 4) {
		statement = "SHOW BINARY LOG STATUS"
	}
	rows, err := d.root.QueryContext(ctx, statement)
	if err != nil {
		return "", 0, fmt.Errorf("end of the log: %w", err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return "", 0, err
	}
	values := make([]any, len(names))
	values[0], values[1] = &file, &offset
	for i := 2; i < len(names); i++ {
		values[i] = new(any)
	}
	if !rows.Next() {
		return "", 0, fmt.Errorf("%s has no log: %w", d.Addr(), rows.Err())
	}
	return file, offset, rows.Scan(values...)
}

// CatchUp waits until this replica has applied all that the primary had committed at the time of the call.
func (d *Database) CatchUp(ctx context.Context, primary *Database) error {
	statements := replicationSQL[d.speaks()]
	gtids, err := primary.hasGTIDs(ctx)
	if err != nil {
		return err
	}
	var until []any
	wait := statements.wait
	if gtids {
		var position string
		err = primary.root.QueryRowContext(ctx, statements.position).Scan(&position)
		until = []any{position}
	} else {
		var file string
		var offset uint64
		file, offset, err = primary.logEnd(ctx)
		until, wait = []any{file, offset}, statements.waitAt
	}
	if err != nil {
		return fmt.Errorf("position of the primary: %w", err)
	}
	for {
		var answer int
		if err := d.root.QueryRowContext(ctx, wait, until...).Scan(&answer); err != nil {
			return fmt.Errorf("wait for the replica to apply %v: %w", until, err)
		}
		if gtids && answer == 0 || !gtids && answer >= 0 {
			return nil
		}
	}
}

// Promote ends the replication for good: the server has no source, as after a failover.
func (d *Database) Promote(ctx context.Context) error {
	for _, statement := range replicationSQL[d.speaks()].stop {
		if _, err := d.root.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("promote the replica: %w", err)
		}
	}
	return nil
}
