package relay

import (
	"context"
	"testing"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// sentBy is the list of the relays before: one row of each table.
type sentBy map[string]outbox.Identity

func (sentBy) Leave(context.Context, lease.SentRows) error { return nil }

func (s sentBy) Left(_ context.Context, tables []string) (left lease.SentRows, err error) {
	for _, name := range tables {
		left.Rows = append(left.Rows, s[name])
	}
	return left, nil
}

// A standby that takes over has the rows in its journal that the relay before has sent and could not show as SENT: nothing sends them again.
func TestG32_TakeOverDoesNotSendRefusedRows(t *testing.T) {
	open := func() *checkpoint.Store {
		store, err := checkpoint.OpenContext(t.Context(), t.TempDir(), checkpoint.Options{})
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, store.Close()) })
		return store
	}
	store := open()
	refused := outbox.Identity{Table: "shop.t", ID: "17", MessageID: "order:17"}
	held := NewHeldLease(LeaseParts{State: store, Log: zap.NewNop(), Sent: sentBy{"shop.t": refused}})
	for range 2 { // an acquisition that fails later is repeated
		left, err := held.readSent(t.Context(), []string{"shop.t"})
		testkit.Must(t, err)
		testkit.Must(t, held.inheritSent(left))
	}
	journal, err := store.Journal()
	testkit.Must(t, err)
	if len(journal) != 1 || journal[0].Identity != refused || journal[0].Action != outbox.ActionMarkSent {
		t.Errorf("the journal is %+v", journal)
	}
}
