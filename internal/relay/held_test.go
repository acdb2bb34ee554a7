package relay

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A relay that takes over from another state directory obeys the last command: the one to the active relay or, if it had seen no
// active relay, the one to its own directory.
func TestTheLastPauseIsInherited(t *testing.T) {
	store, err := checkpoint.OpenContext(t.Context(), t.TempDir(), checkpoint.Options{})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, store.Close()) }()
	own, theirs := &outbox.Pause{By: "own"}, &outbox.Pause{By: "theirs"}
	for name, c := range map[string]struct {
		own     *outbox.Pause
		left    *outbox.Pause
		watched bool
		want    *outbox.Pause
	}{
		"from a paused one":                 {nil, theirs, true, theirs},
		"from a paused one, paused itself":  {own, theirs, false, theirs},
		"from one that was resumed":         {own, nil, true, nil},
		"paused while no relay was active":  {own, nil, false, own},
		"from one that was not paused ever": {nil, nil, true, nil},
	} {
		testkit.Must(t, store.SetPause(c.own))
		held := NewHeldLease(LeaseParts{State: store, Log: zap.NewNop()})
		testkit.Must(t, held.inheritPause(c.left, c.watched))
		if got := store.Pause(); (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// answering is a Source with a fixed answer.
type answering struct {
	info server.Info
	end  outbox.Position
}

func (a answering) Look(context.Context) (server.Info, outbox.Position, error) {
	return a.info, a.end, nil
}
func (a answering) End(context.Context) (outbox.Position, error) { return a.end, nil }

// A server that lacks what the active relay has read is refused by the relay that takes over, too, if it worked on the old server before.
// A relay of another server, with a copy of the lease table, leaves the position alone.
func TestG35_ARefusalHoldsForTheStandby(t *testing.T) {
	const a, b, c = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562", "5e11fa47-71ca-11e1-9e33-c80aa9429562"
	old := server.ID{Flavor: outbox.MySQL, UUID: a, ServerID: 1}
	next := server.Info{ID: server.ID{Flavor: outbox.MySQL, UUID: b, ServerID: 2}, GTID: true, Executed: a + ":1-5"}
	left := lease.Resume{Source: old, At: outbox.Position{File: "log.000001", Offset: 900, GTIDs: a + ":1-9"}}
	for name, x := range map[string]struct {
		recorded server.ID
		accept   bool
		refused  bool
	}{
		"worked on the old server": {old, false, true},
		"the operator accepts it":  {old, true, false},
		"of another server":        {server.ID{Flavor: outbox.MySQL, UUID: c, ServerID: 3}, false, false},
	} {
		store, err := checkpoint.OpenContext(t.Context(), t.TempDir(), checkpoint.Options{})
		testkit.Must(t, err)
		testkit.Must(t, store.Reset(x.recorded, outbox.Position{File: "log.000001", Offset: 500, GTIDs: a + ":1-4"}, 0, "test"))
		held := NewHeldLease(LeaseParts{
			State: store, Source: answering{next, outbox.Position{File: "log.000001", Offset: 400}}, Log: zap.NewNop(), Accept: x.accept, Lease: lease.Alone(lease.Off, ""),
		})
		use, err := held.usable(t.Context(), left)
		var refused *RefusedError
		if use || errors.As(err, &refused) != x.refused || err != nil && !x.refused {
			t.Errorf("%s: use %v, %v", name, use, err)
		}
		testkit.Must(t, store.Close())
	}
}
