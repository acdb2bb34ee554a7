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

// SentRows is the lease's list of rows that are published and that their table does not show as SENT, and of the signs of life.
type SentRows interface {
	// Leave replaces the list of this relay.
	Leave(ctx context.Context, sent lease.SentRows) error
	// Left returns the lists of the relays before.
	Left(ctx context.Context, tables []string) (lease.SentRows, error)
	// Forget removes the signs of life of all relays.
	Forget(ctx context.Context) error
}

const (
	maxSentRows  = 2000            // that the lease names
	shareSentIn  = 5 * time.Second // between two updates of the list
	sentRowsText = "the lease does not name the published rows that their table does not show as SENT: a relay that takes over sends them again"
)

// ShareSent keeps the lease's list of sent rows, which a relay that takes over must not send, and the sign of life until ctx ends. It logs one
// error until an update has worked again.
func (h *HeldLease) ShareSent(ctx context.Context, r *Relay) {
	var shared lease.SentRows
	failed := false
	for more := true; more; more = outbox.Wait(ctx, shareSentIn, nil) {
		sent, err := h.share(ctx, r, shared)
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

// share writes what the lease shows unless that was shared already. Before the relay works the sign of life is all there is.
func (h *HeldLease) share(ctx context.Context, r *Relay, shared lease.SentRows) (sent lease.SentRows, err error) {
	h.sharing.Lock()
	defer h.sharing.Unlock()
	if r.Ready() {
		sent = r.sentRows()
	}
	if sent.Life = h.life.Load(); reflect.DeepEqual(sent, shared) {
		return sent, nil
	}
	ctx, cancel := context.WithTimeout(ctx, shareSentIn)
	defer cancel()
	return sent, h.Sent.Leave(ctx, sent)
}

// Sign is the sign of life that a relay finds that takes over; nil removes it. It is in the lease a few seconds later.
func (h *HeldLease) Sign(life *outbox.Life) { h.life.Store(life) }

// Forget removes the sign of life at once.
func (h *HeldLease) Forget(ctx context.Context) error {
	h.life.Store(nil)
	h.sharing.Lock() // an update that is under way has the sign
	defer h.sharing.Unlock()
	if h.Sent == nil {
		return nil
	}
	return h.Sent.Forget(ctx)
}

// ShareLastSent is ShareSent at the stop, before Release.
func (h *HeldLease) ShareLastSent(ctx context.Context, r *Relay) {
	h.sharing.Lock()
	defer h.sharing.Unlock()
	sent := lease.SentRows{}
	if r.Acks != nil { // it has worked
		sent = r.sentRows()
	}
	sent.Life = h.life.Load()
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

// inheritLife makes the last signs of life of the relay before those of this state directory: its own are older, and what it may have sent then
// the other relay has looked for.
func (h *HeldLease) inheritLife(left *outbox.Life) error {
	switch {
	case h.Signs == nil:
		return nil
	case left == nil:
		return h.Signs.Remove()
	}
	return h.Signs.Write(*left)
}
