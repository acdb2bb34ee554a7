package canal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// completeGTIDs makes sure that the GTID set of our position is known where the server has GTIDs. A position that an operator
// gave by file and offset has no set. An empty set would mean that nothing before was read, so the set at that position is read
// first.
func (r *Reader) completeGTIDs(ctx context.Context, p *serverState) error {
	if r.set != nil || !p.info.GTID {
		return nil
	}
	text := r.pos.GTIDs
	if text == "" && p.info.Executed != "" {
		var err error
		if text, err = r.executedAt(ctx, p); err != nil {
			return fmt.Errorf("GTID set at %s: %w", r.pos, err)
		}
	}
	set, err := outbox.ParseGTIDSet(p.info.Flavor, text)
	if err != nil {
		return fmt.Errorf("position to continue from: %w", err)
	}
	r.set = set
	return nil
}

// executedAt returns the set of all transactions that end at or before our file and offset.
func (r *Reader) executedAt(ctx context.Context, p *serverState) (string, error) {
	if p.info.Flavor == outbox.MariaDB {
		var text sql.NullString
		err := r.db.QueryRowContext(ctx, "SELECT BINLOG_GTID_POS(?, ?)", r.pos.File, r.pos.Offset).Scan(&text)
		return text.String, err
	}
	// MySQL writes the set at the start of each file: the transactions after it are counted from there.
	start := outbox.Position{File: r.pos.File, Offset: firstOffset}
	count := &gtidCounter{set: outbox.NewGTIDSet(p.info.Flavor)}
	count.each = func(txn *outbox.Txn) (more bool) {
		if txn.End.Compare(r.pos) <= 0 {
			count.set.Add(txn.GTID)
		}
		return txn.End.Compare(r.pos) < 0
	}
	count.stream = r.newStream(ctx, count, start)
	count.stream.gauge = newGauge(prometheus.NewRegistry(), nil, r.cfg.Heartbeat) // the metrics of this stream are not shown
	if err := count.stream.run(r.cfg, *p, start, count); !errors.Is(err, errPartRead) {
		return "", err
	}
	return count.set.String(), nil
}

// firstOffset is where the first event of every binlog file begins.
const firstOffset = 4

// gtidCounter counts the transactions of a part of the log, from the start of a file.
type gtidCounter struct {
	part
	set *outbox.GTIDSet
}

// HandleEvent implements replication.EventHandler.
func (c *gtidCounter) HandleEvent(e *replication.BinlogEvent) error {
	if before, ok := e.Event.(*replication.PreviousGTIDsEvent); ok {
		set, err := outbox.ParseGTIDSet(outbox.MySQL, before.GTIDSets)
		if err != nil {
			return err
		}
		c.set.AddSet(set)
	}
	return c.part.HandleEvent(e)
}
