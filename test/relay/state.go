package relay

import (
	"database/sql"
	"testing"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
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

// LogEnd is where the log of a server ends now.
func LogEnd(t testing.TB, db *sql.DB) outbox.Position {
	t.Helper()
	info, err := server.Inspect(t.Context(), db)
	testkit.Must(t, err)
	end, err := info.End(t.Context(), db)
	testkit.Must(t, err)
	return end
}
