package app

import (
	"context"
	"testing"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
)

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
	turn := &Turn{State: store, Log: zap.NewNop(), Left: func(_ context.Context, tables []string) (lease.SentRows, error) {
		if len(tables) != 1 || tables[0] != "shop.t" {
			t.Errorf("asked for %v", tables)
		}
		return lease.SentRows{Rows: []outbox.Identity{refused}}, nil
	}}
	for range 2 { // an acquisition that fails behind it is tried again
		left, err := turn.readLeft(t.Context(), []string{"shop.t"})
		testkit.Must(t, err)
		testkit.Must(t, turn.inheritSent(left))
	}
	journal, err := store.Journal()
	testkit.Must(t, err)
	if len(journal) != 1 || journal[0].Identity != refused || journal[0].Action != outbox.ActionMarkSent {
		t.Errorf("the journal is %+v", journal)
	}
}
