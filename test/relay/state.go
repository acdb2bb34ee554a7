package relay

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// State is what a process that has ended left in the state directory.
type State struct {
	Checkpoint outbox.Position // zero before the first start
	Journal    map[string]bool // message ids that are sent and not confirmed by the table
	Gaps       []outbox.Gap
}

// State reads the state directory. No process may be running.
func (r *Relay) State(t testing.TB) State {
	t.Helper()
	if r.Running() {
		t.Fatalf("the state is read while the relay runs")
	}
	return ReadState(t, r.StateDir())
}

// ReadState reads a state directory that no process has open.
func ReadState(t testing.TB, dir string) State {
	t.Helper()
	store, err := checkpoint.Open(dir, checkpoint.Options{})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, store.Close()) }()
	s := State{Journal: map[string]bool{}}
	s.Checkpoint, _ = store.Checkpoint()
	entries, err := store.Journal()
	testkit.Must(t, err)
	for _, e := range entries {
		s.Journal[e.MessageID] = true
	}
	s.Gaps, err = store.Gaps()
	testkit.Must(t, err)
	return s
}
