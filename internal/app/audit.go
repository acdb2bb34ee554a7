package app

import (
	"context"
	"encoding/json"
	"fmt"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/admin"
)

// record writes down what somebody did, in the state directory and in the log.
func (d *daemon) record(c admin.Change) error {
	d.log.Named("audit").Info("changed by a person", zap.String("by", c.By), zap.String("what", c.What),
		zap.String("before", c.Before), zap.String("after", c.After), zap.String("error", c.Error))
	return operatorState{d.state}.record(c)
}

// Sweep asks for a sweep.
func (s *service) Sweep(ctx context.Context) error {
	return s.Audited(ctx, "sweep", nil, s.d.relay.Sweep)
}

// Retention asks for a pass.
func (s *service) Retention(ctx context.Context) error {
	return s.Audited(ctx, "retention", nil, s.leave)
}

// RetryMessages sets messages back to PENDING.
func (s *service) RetryMessages(ctx context.Context, order admin.MessageOrder) (admin.MessageChange, error) {
	return s.change(ctx, "messages retry", order, s.Messages.RetryMessages)
}

// DiscardMessages moves messages to the failed-message log.
func (s *service) DiscardMessages(ctx context.Context, order admin.MessageOrder) (admin.MessageChange, error) {
	return s.change(ctx, "messages discard", order, s.Messages.DiscardMessages)
}

// change carries out an order on messages and records it, unless it was a dry run.
func (s *service) change(
	ctx context.Context, what string, order admin.MessageOrder, do func(context.Context, admin.MessageOrder) (admin.MessageChange, error),
) (changed admin.MessageChange, err error) {
	if order.DryRun {
		return do(ctx, order)
	}
	asked, err := json.Marshal(order)
	if err != nil {
		return changed, err
	}
	done := func() string {
		if changed.Table == "" {
			return ""
		}
		return fmt.Sprintf("%d of %d rows of %s", changed.Changed, changed.Matched, changed.Table)
	}
	err = s.Audited(ctx, what+" "+short(string(asked)), done, func() error {
		changed, err = do(ctx, order)
		return err
	})
	return changed, err
}

// short keeps an order on one line of the list.
func short(text string) string {
	const most = 400
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
