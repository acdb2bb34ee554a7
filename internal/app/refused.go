package app

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox/store"
)

// logRefused writes a line for rows that a statement left out; a table has one a minute.
func logRefused(log *zap.Logger) func(store.RefusedRow, int) {
	return func(last store.RefusedRow, rows int) {
		log.Error("rows are left out because the relay cannot read or change them; other rows are not affected; repair or delete them",
			zap.String("table", last.Table), zap.Int("rows", rows), zap.String("last_id", last.ID), zap.String("last_message_id", last.MessageID),
			zap.String("reason", last.Reason))
	}
}

// refusedFor is how long a row that was left out is a problem of the status: every sweep leaves it out again until it is repaired.
func (in *instance) refusedFor() time.Duration {
	return 2*max(in.cfg.Fallback.Interval, 10*time.Second) + 10*time.Second
}

// rowTroubles are sweeps that fail, and rows that are left out.
func (s *service) rowTroubles() (troubles []string) {
	if since, err := s.in.relay.Sweeper.Trouble(); err != nil {
		troubles = append(troubles, operator.See(fmt.Sprintf("sweeps fail since %s, and rows that the binlog did not deliver wait: %v",
			since.UTC().Format(time.RFC3339), err), "A sweep fails"))
	}
	for _, name := range s.in.rows.Names() {
		last, n := s.in.rows.Refused(name, s.in.refusedFor())
		if n == 0 {
			continue
		}
		troubles = append(troubles, operator.See(fmt.Sprintf("%d row(s) of %s are left out because the relay cannot read or change them, the last with id %q (message id %q): %s; "+
			"other rows are not affected", n, name, last.ID, last.MessageID, last.Reason), "Rows that are left out"))
	}
	return troubles
}
