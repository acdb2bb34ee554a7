package app

import (
	"context"
	"reflect"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

const (
	handedOver  = 2000            // sent rows that the lease names at most
	leavesEvery = 5 * time.Second // between two looks at what a relay that takes over has to know
)

// leaveSent keeps the lease's list of sent rows, which a relay that takes over must not send, until ctx ends. An error is logged once: the
// next look tries again.
func (d *daemon) leaveSent(ctx context.Context) {
	var left lease.SentRows
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(leavesEvery):
		}
		if !d.relay.Ready() {
			continue
		}
		sent := d.sentRows()
		if reflect.DeepEqual(sent, left) {
			continue
		}
		err := d.leave(ctx, sent)
		if err == nil {
			left, failed = sent, false
			continue
		}
		if !failed && ctx.Err() == nil {
			d.log.Warn("the lease does not name the published rows that their table does not show as SENT: a relay that takes over sends them again",
				zap.Int("rows", len(sent.Rows)+sent.More), zap.Error(err))
		}
		failed = true
	}
}

// leaveLast is leaveSent at the stop, before the lease is released.
func (d *daemon) leaveLast() {
	if d.tenure == nil || d.tenure.db == nil || d.relay == nil || d.relay.Acks == nil || d.outdated.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.Lease.Time/3)
	defer cancel()
	sent := d.sentRows()
	if err := d.leave(ctx, sent); err != nil {
		sent = lease.SentRows{More: len(sent.Rows) + sent.More}
		d.log.Warn("the lease does not name the published rows that their table does not show as SENT", zap.Error(err))
	}
	if sent.More > 0 {
		d.log.Warn("a relay that takes over sends rows again that their table does not show as SENT", zap.Int("rows", sent.More))
	}
}

func (d *daemon) sentRows() (sent lease.SentRows) {
	sent.Rows, sent.More = d.relay.Acks.Unshown(handedOver)
	return sent
}

func (d *daemon) leave(ctx context.Context, sent lease.SentRows) error {
	holder, _ := d.identity()
	return lease.NewTable(d.tenure.db, d.tenure.name).Leave(ctx, holder, sent)
}

// left reads what the relays before left.
func (d *daemon) left(ctx context.Context, tables []string) (lease.SentRows, error) {
	holder, _ := d.identity()
	return lease.NewTable(d.tenure.db, d.tenure.name).Left(ctx, holder, tables)
}

// readLeft reads what the relays before left. An older lease table has no such list, and keeps no relay from working; after any other error
// the take-over is tried again.
func (t *Turn) readLeft(ctx context.Context, tables []string) (left lease.SentRows, err error) {
	if t.Left == nil {
		return left, nil
	}
	if left, err = t.Left(ctx, tables); server.Code(err) == 1054 { // BAD_FIELD_ERROR
		t.Log.Warn("not known which rows the relay before has sent that their table does not show as SENT: they are sent again", zap.Error(err))
		return left, nil
	}
	return left, err
}

// inheritSent puts the rows that the relay before has sent, and that their table does not show as SENT, into the journal: the start tries to
// write their statuses, and nothing sends them.
func (t *Turn) inheritSent(left lease.SentRows) error {
	if left.More > 0 {
		t.Log.Warn("rows that the relay before has sent, and that it did not name, are sent again", zap.Int("rows", left.More))
	}
	if len(left.Rows) == 0 {
		return nil
	}
	sent := make([]outbox.Completion, len(left.Rows))
	for i, id := range left.Rows {
		sent[i] = outbox.Completion{Identity: id, Action: outbox.ActionMarkSent}
	}
	if err := t.State.Commit(sent, nil, nil, 0); err != nil {
		return err
	}
	t.Log.Info("the relay before has sent rows that their table does not show as SENT: they are not sent again", zap.Int("rows", len(sent)))
	return nil
}
