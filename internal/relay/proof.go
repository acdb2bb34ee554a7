package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/ack"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// recoverTimeout bounds one question for the proof; the coordinator ends the transaction of a killed process within 30 s.
const recoverTimeout = time.Minute

// recoverPauses are between two questions.
var recoverPauses = outbox.Backoff{Base: time.Second, Max: 10 * time.Second}

// proven puts the rows that the broker has, and that an earlier process may not have journalled, into the journal: their statuses are written, and
// nothing sends them. It waits for a broker that is away, because without its answer nothing may be sent.
func (r *Relay) proven(ctx context.Context) error {
	if r.parts.Prover == nil {
		return nil
	}
	tables := slices.Sorted(maps.Keys(r.parts.LogOnly))
	tables = append(tables, r.settings.Fallback.Tables...)
	rows, err := r.recoverSent(ctx, tables)
	for n := 0; err != nil; n++ {
		if errors.As(err, new(*sink.NoProofError)) || ctx.Err() != nil {
			return err
		}
		if n == 0 {
			r.log.Warn("the broker does not say what was sent: waiting for it, nothing is sent before", zap.Error(err))
		}
		if !outbox.Wait(ctx, recoverPauses.Delay(n, exact), nil) {
			return ctx.Err()
		}
		rows, err = r.recoverSent(ctx, tables)
	}
	if len(rows) == 0 {
		return nil
	}
	sent := make([]outbox.Completion, len(rows))
	for i, id := range rows {
		sent[i] = outbox.Completion{Identity: id, Action: outbox.ActionMarkSent}
	}
	if err := r.parts.State.Commit(sent, nil, nil, 0); err != nil {
		return fmt.Errorf("journal %d rows that the broker has: %w", len(sent), err)
	}
	r.log.Info("the broker has messages of rows that their table may not show as SENT: they are not sent again", zap.Int("rows", len(sent)))
	return nil
}

func (r *Relay) recoverSent(ctx context.Context, tables []string) ([]outbox.Identity, error) {
	bounded, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	return r.parts.Prover.Recover(bounded, tables)
}

// progress is the account of rows as ack sees it.
func (r *Relay) progress() ack.Progress {
	if r.parts.Prover == nil {
		return r.tracker
	}
	return provenProgress{r.tracker, r.parts.Prover}
}

// provenProgress reports to the broker's proof which rows are settled.
type provenProgress struct {
	*tracker.Tracker
	prover sink.Prover
}

// Written implements ack.Progress. The proof comes first: once the registry releases a row it may be sent again, and that must not be taken for
// settled.
func (p provenProgress) Written(list []outbox.Completion) {
	p.prover.Settled(list)
	p.Tracker.Written(list)
}

// finish ends the proof after the last status was written.
func (r *Relay) finish(ctx context.Context) {
	if r.parts.Prover == nil {
		return
	}
	if err := r.parts.Prover.Finish(ctx); err != nil {
		r.log.Warn("the broker did not take the record of what is settled: rows that are set back by hand now may not be sent again", zap.Error(err))
	}
}
