package operator

import (
	"context"
	"fmt"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// replay publishes the SENT rows again that the log has between a position of the past and the checkpoint, or says which. The checkpoint
// stays where it is.
func (o *Operator) replay(ctx context.Context, t Target, p Preview) (Preview, error) {
	if o.Republish == nil {
		return p, Refusedf("nothing was published: only a relay that runs, and is active, can publish rows again")
	}
	if p.To.File == "" || p.From.File == "" || p.To.Compare(p.From) >= 0 {
		return p, Refusedf("nothing was published: --republish needs a file position, or a time, before the checkpoint at %s", p.From)
	}
	bounded, cancel := context.WithTimeout(ctx, boundaryPatience)
	defer cancel()
	rows, err := o.sentBetween(bounded, p.To, p.From, t.Limit)
	if err != nil {
		return p, err
	}
	p.Republish = len(rows)
	p.Notes = append(p.Notes, fmt.Sprintf("%d SENT rows are published again under their message ids, and stay SENT; the checkpoint stays at %s", len(rows), p.From))
	if t.DryRun || len(rows) == 0 {
		return p, nil
	}
	what := fmt.Sprintf("republish %d rows from %s to %s", len(rows), p.To, p.From)
	finish, err := Begin(ctx, o.Record, what, "")
	if err != nil {
		return p, err
	}
	published, err := o.Republish(ctx, rows)
	err = finish(fmt.Sprintf("%d published", published), err)
	p.Republished, p.Applied = published, err == nil
	if err != nil {
		return p, fmt.Errorf("%d of %d rows were published again, then it ended: %w", published, len(rows), err)
	}
	return p, nil
}

// sentBetween reads a part of the log and returns its rows that are SENT now, refused when they are more than limit.
func (o *Operator) sentBetween(ctx context.Context, from, to outbox.Position, limit int) (sent []outbox.Candidate, err error) {
	err = o.eachPage(ctx, from, to, func(txn *outbox.Txn) (ids []outbox.Identity) {
		for _, m := range txn.Messages {
			ids = append(ids, m.Identity)
		}
		return ids
	}, func(_ int, rows []outbox.Candidate) error {
		sent = append(sent, slices.DeleteFunc(rows, func(row outbox.Candidate) bool { return row.Status != outbox.Sent })...)
		if len(sent) > limit {
			return Refusedf("nothing was published: more than %d rows between %s and %s are SENT; raise --limit, or name a later position", limit, from, to)
		}
		return nil
	})
	return sent, err
}
