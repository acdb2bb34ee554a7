package app

import (
	"testing"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// Who takes over from another state directory does what was last said of the relay: to the active one, or, while nobody was seen as
// active, to the directory itself.
func TestWhatBecomesOfAPause(t *testing.T) {
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
		"paused while nobody was active":    {own, nil, false, own},
		"from one that was not paused ever": {nil, nil, true, nil},
	} {
		testkit.Must(t, store.SetPause(c.own))
		turn := &Turn{State: store, Log: zap.NewNop()}
		testkit.Must(t, turn.inheritPause(c.left, c.watched))
		if got := store.Pause(); (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
