package soak

import (
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// put runs one fault; when it returns, nothing is broken and a relay runs.
func (w *world) put(f Fault) {
	w.t.Helper()
	w.faults++
	for _, r := range w.relays {
		if !r.Running() {
			w.t.Fatalf("a relay has ended by itself:\n%s", r.LogTail(30))
		}
	}
	w.choose()
	if len(w.relays) > 1 {
		w.excuse(nil) // the other one may take over, with the statuses in the table
	}
	switch f.Kind {
	case KillRelay:
		w.kill()
		w.pass(f.Length)
	case RestartRelay:
		w.stopInTime()
		w.pass(f.Length)
	case PurgeLogs:
		w.kill()
		w.pass(f.Length)
		w.must(w.db.Purge(w.t.Context()))
	case KillSessions:
		w.killSessions()
	case CheckpointBack:
		w.checkpointBack()
	case RestartServer:
		w.restartServer()
	default:
		w.during(f)
	}
	w.choose()
}

// during breaks something for the fault's length and fixes it.
func (w *world) during(f Fault) {
	if w.fake == nil && (f.Kind == StopBroker || f.Kind == FreezeBroker) {
		w.excuse(nil) // RocketMQ stores what times out, and the relay cannot know
	}
	fix := w.breakIt(f.Kind)
	if f.Kill {
		w.pass(f.Length / 2)
		w.kill()
		w.pass(f.Length / 2)
	} else {
		w.pass(f.Length)
	}
	w.must(fix())
}

func (w *world) breakIt(kind Kind) (fix func() error) {
	w.t.Helper()
	fix, err := Parts{Relay: w.relay, Proxy: w.proxy, Fake: w.fake, Server: w.server}.Break(w.t, kind)
	w.must(err)
	return fix
}

func (w *world) killSessions() {
	_, err := w.db.KillSessions(w.t.Context(), "USER = 'relay'")
	w.must(err)
}

// checkpointBack goes to the oldest position that the log and the history have.
func (w *world) checkpointBack() {
	if _, err := w.relay.Client().SetCheckpoint(w.t.Context(), operator.Target{Earliest: true}); err != nil {
		w.t.Logf("soak: checkpoint set: %v", err)
	}
}

// restartServer pauses the application meanwhile: it could not tell which of its transactions were committed.
func (w *world) restartServer() {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.must(w.db.Stop())
	w.must(w.db.Start(w.t.Context()))
}

func (w *world) must(err error) {
	w.t.Helper()
	testkit.Must(w.t, err)
}
