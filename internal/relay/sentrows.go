package relay

import (
	"context"
	"reflect"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// SentRows is the lease's list of rows that are published and that their table does not show as SENT.
type SentRows interface {
	// Leave replaces the list of this relay.
	Leave(ctx context.Context, sent lease.SentRows) error
	// Left returns the lists of the relays before.
	Left(ctx context.Context, tables []string) (lease.SentRows, error)
}

const (
	maxSentRows  = 2000            // that the lease names
	shareSentIn  = 5 * time.Second // between two updates of the list
	sentRowsText = "the lease does not name the published rows that their table does not show as SENT: a relay that takes over sends them again"
)

// ShareSent keeps the lease's list of sent rows, which a relay that takes over must not send, until ctx ends. It logs one error until an
// update has worked again.
func (h *HeldLease) ShareSent(ctx context.Context, r *Relay) {
	var shared lease.SentRows
	failed := false
	for outbox.Wait(ctx, shareSentIn, nil) {
		if !r.Ready() {
			continue
		}
		sent := r.sentRows()
		if reflect.DeepEqual(sent, shared) {
			continue
		}
		err := h.Sent.Leave(ctx, sent)
		if err == nil {
			shared, failed = sent, false
			continue
		}
		if !failed && ctx.Err() == nil {
			h.Log.Warn(sentRowsText, zap.Int("rows", len(sent.Rows)+sent.More), zap.Error(err))
		}
		failed = true
	}
}

// ShareLastSent is ShareSent at the stop, before Release.
func (h *HeldLease) ShareLastSent(ctx context.Context, r *Relay) {
	if r.Acks == nil {
		return // it has never worked
	}
	sent := r.sentRows()
	if err := h.Sent.Leave(ctx, sent); err != nil {
		h.Log.Warn(sentRowsText, zap.Int("rows", len(sent.Rows)+sent.More), zap.Error(err))
	} else if sent.More > 0 {
		h.Log.Warn("a relay that takes over sends rows again that their table does not show as SENT", zap.Int("rows", sent.More))
	}
}

func (r *Relay) sentRows() (sent lease.SentRows) {
	sent.Rows, sent.More = r.Acks.Unshown(maxSentRows)
	return sent
}

// readSent reads what the relays before left. An older lease table has no such list, which keeps no relay from working; after any other error
// the take-over is tried again.
func (h *HeldLease) readSent(ctx context.Context, tables []string) (left lease.SentRows, err error) {
	if h.Sent == nil {
		return left, nil
	}
	if left, err = h.Sent.Left(ctx, tables); server.Code(err) == 1054 { // BAD_FIELD_ERROR
		h.Log.Warn("not known which rows the relay before has sent that their table does not show as SENT: they are sent again", zap.Error(err))
		return left, nil
	}
	return left, err
}

// inheritSent puts the rows that the relay before has sent, and that their table does not show as SENT, into the journal: the start tries to
// write their statuses, and nothing sends them.
func (h *HeldLease) inheritSent(left lease.SentRows) error {
	if left.More > 0 {
		h.Log.Warn("rows that the relay before has sent, and that it did not name, are sent again", zap.Int("rows", left.More))
	}
	if len(left.Rows) == 0 {
		return nil
	}
	sent := make([]outbox.Completion, len(left.Rows))
	for i, id := range left.Rows {
		sent[i] = outbox.Completion{Identity: id, Action: outbox.ActionMarkSent}
	}
	if err := h.State.Commit(sent, nil, nil, 0); err != nil {
		return err
	}
	h.Log.Info("the relay before has sent rows that their table does not show as SENT: they are not sent again", zap.Int("rows", len(sent)))
	return nil
}
