package app

import (
	"testing"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// Who takes over from another state directory does what was last said of the relay: to the active one, or, while nobody was seen as
// active, to the directory itself.
func TestWhatBecomesOfAPause(t *testing.T) {
	store, err := checkpoint.OpenContext(t.Context(), t.TempDir(), checkpoint.Options{})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, store.Close()) }()
	own, theirs := &outbox.Pause{By: "own"}, &outbox.Pause{By: "theirs"}
	of := func(p *outbox.Pause) *lease.Grant { return &lease.Grant{Other: true, From: lease.Resume{Pause: p}} }
	for name, c := range map[string]struct {
		own     *outbox.Pause
		grant   *lease.Grant
		watched bool
		want    *outbox.Pause
	}{
		"without a lease":                   {own, nil, false, own},
		"the same directory":                {own, &lease.Grant{}, true, own},
		"the same directory, resumed":       {nil, &lease.Grant{}, true, nil},
		"from a paused one":                 {nil, of(theirs), true, theirs},
		"from a paused one, paused itself":  {own, of(theirs), false, theirs},
		"from one that was resumed":         {own, of(nil), true, nil},
		"paused while nobody was active":    {own, of(nil), false, own},
		"from one that was not paused ever": {nil, of(nil), true, nil},
	} {
		testkit.Must(t, store.SetPause(c.own))
		turn := &Turn{State: store, Log: zap.NewNop()}
		testkit.Must(t, turn.inheritPause(c.grant, c.watched))
		if got := store.Pause(); (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
