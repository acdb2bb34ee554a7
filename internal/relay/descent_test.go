package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A11: a server without GTIDs is a copy of the recorded one if a row of its lease table was written there, not long before.
func TestA11_CopiesWithoutGTIDs(t *testing.T) {
	const a, b, c = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562", "5e11fa47-71ca-11e1-9e33-c80aa9429562"
	old, now, other := server.ID{Flavor: outbox.MySQL, UUID: a, ServerID: 1}, server.ID{Flavor: outbox.MySQL, UUID: b, ServerID: 2}, server.ID{Flavor: outbox.MySQL, UUID: c, ServerID: 3}
	at := func(offset uint64) outbox.Position { return outbox.Position{File: "log.000001", Offset: offset} }
	away := errors.New("away")
	for name, x := range map[string]struct {
		traces     []lease.Trace
		err        error
		checkpoint outbox.Position
		want       bool
	}{
		"the same position, released":        {traces: []lease.Trace{{On: b, Source: old, At: at(500), Released: true}}, checkpoint: at(500), want: true},
		"renewed when the relay last read":   {traces: []lease.Trace{{On: b, Source: old, At: at(400), Age: time.Minute}}, checkpoint: at(500), want: true},
		"nine minutes before":                {traces: []lease.Trace{{On: b, Source: old, At: at(400), Age: 10 * time.Minute}}, checkpoint: at(500), want: true},
		"an hour before":                     {traces: []lease.Trace{{On: b, Source: old, At: at(400), Age: time.Hour}}, checkpoint: at(500)},
		"an earlier position, released":      {traces: []lease.Trace{{On: b, Source: old, At: at(400), Released: true}}, checkpoint: at(500)},
		"of another server":                  {traces: []lease.Trace{{On: b, Source: other, At: at(500)}}, checkpoint: at(500)},
		"read on another server":             {traces: []lease.Trace{{On: a, Source: old, At: at(500)}}, checkpoint: at(500)},
		"of this server":                     {traces: []lease.Trace{{On: b, Source: now, At: at(500)}}, checkpoint: at(500)},
		"no rows":                            {checkpoint: at(500)},
		"one of several rows":                {traces: []lease.Trace{{On: b, Source: other, At: at(900)}, {On: b, Source: old, At: at(600)}}, checkpoint: at(500), want: true},
		"a checkpoint with GTIDs needs them": {traces: []lease.Trace{{On: b, Source: old, At: at(500)}}, checkpoint: outbox.Position{File: "log.000001", Offset: 500, GTIDs: a + ":1-4"}},
		"the database is away":               {err: away, checkpoint: at(500)},
	} {
		held := NewHeldLease(LeaseParts{
			Traces: func(context.Context) ([]lease.Trace, error) { return x.traces, x.err }, CheckpointAt: func() time.Time { return time.Now().Add(-time.Minute) },
		})
		held.begun.Store(true)
		if _, descends, err := held.Descends(t.Context(), old, x.checkpoint, now); descends != x.want || !errors.Is(err, x.err) {
			t.Errorf("%s: %v, %v", name, descends, err)
		}
	}
	if _, descends, err := NewHeldLease(LeaseParts{}).Descends(t.Context(), old, at(500), now); descends || err != nil {
		t.Errorf("without a lease: %v, %v", descends, err)
	}
}

// A11: when the answer of the lease was lost, the row that was the proof has been overwritten. It counts still, by the same rule: not for a copy
// that the recorded server has left behind by more than ten minutes meanwhile.
func TestA11_TheAnswerOfTheLeaseIsLost(t *testing.T) {
	const a, b, c = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562", "5e11fa47-71ca-11e1-9e33-c80aa9429562"
	old, now, other := server.ID{Flavor: outbox.MySQL, UUID: a, ServerID: 1}, server.ID{Flavor: outbox.MySQL, UUID: b, ServerID: 2}, server.ID{Flavor: outbox.MySQL, UUID: c, ServerID: 3}
	at := func(offset uint64) outbox.Position { return outbox.Position{File: "log.000001", Offset: offset} }
	for name, x := range map[string]struct {
		later    time.Duration // between the two looks
		moved    bool          // the checkpoint moved on meanwhile, on the recorded server
		recorded server.ID     // at the second look
		answers  server.ID     // likewise
		want     bool
	}{
		"at once":                              {recorded: old, answers: now, want: true},
		"after an hour without the database":   {later: time.Hour, recorded: old, answers: now, want: true},
		"back for a while":                     {later: 8 * time.Minute, moved: true, recorded: old, answers: now, want: true},
		"back for longer than a copy may lack": {later: 10 * time.Minute, moved: true, recorded: old, answers: now},
		"another one was recorded meanwhile":   {recorded: other, answers: now},
		"another one answers":                  {recorded: old, answers: other},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				checkpoint, seen := at(500), time.Now()
				trace := lease.Trace{On: b, Source: old, At: at(400), Age: time.Minute}
				held := NewHeldLease(LeaseParts{
					Traces:       func(context.Context) ([]lease.Trace, error) { return []lease.Trace{trace}, nil },
					CheckpointAt: func() time.Time { return seen },
				})
				held.begun.Store(true)
				if _, descends, err := held.Descends(t.Context(), old, checkpoint, now); !descends || err != nil {
					t.Fatalf("first: %v, %v", descends, err)
				}
				time.Sleep(x.later)
				if x.moved {
					checkpoint, seen = at(900), time.Now()
				}
				trace = lease.Trace{On: x.answers.UUID, Source: x.answers, At: at(700)}
				if _, descends, err := held.Descends(t.Context(), x.recorded, checkpoint, x.answers); descends != x.want || err != nil {
					t.Errorf("then: %v, %v", descends, err)
				}
			})
		})
	}
}

// A11: the relay that takes over continues from the position of the active one with a gap, and refuses a copy that is older than what it
// has itself.
func TestA11_TakeOverOnACopyWithoutGTIDs(t *testing.T) {
	const a, b = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
	old, now := server.ID{Flavor: outbox.MySQL, UUID: a, ServerID: 1}, server.ID{Flavor: outbox.MySQL, UUID: b, ServerID: 2}
	left := lease.Resume{Source: old, At: outbox.Position{File: "log.000001", Offset: 900}}
	for name, x := range map[string]struct {
		own     uint64
		refused bool
	}{
		"behind the active one": {own: 500},
		"newer than the copy":   {own: 1500, refused: true},
	} {
		store, err := checkpoint.OpenContext(t.Context(), t.TempDir(), checkpoint.Options{})
		testkit.Must(t, err)
		testkit.Must(t, store.Reset(old, outbox.Position{File: "log.000001", Offset: x.own}, 0, "test"))
		held := NewHeldLease(LeaseParts{
			State: store, Source: answering{server.Info{ID: now}, outbox.Position{File: "log.000001", Offset: 400}}, Log: zap.NewNop(), Lease: lease.Alone(lease.Off, ""),
			Traces: func(context.Context) ([]lease.Trace, error) {
				return []lease.Trace{{On: b, Source: old, At: left.At, Age: time.Hour}}, nil
			},
			CheckpointAt: func() time.Time { return store.Stats().CheckpointAt },
		})
		held.traces, _ = held.Traces(t.Context()) // as Take does
		use, err := held.usable(t.Context(), left)
		var refused *RefusedError
		if use == x.refused || errors.As(err, &refused) != x.refused {
			t.Errorf("%s: use %v, %v", name, use, err)
		}
		testkit.Must(t, store.Close())
	}
}

// Until the relay has accepted the server no renewal writes a position: it would make any server look like a copy of the recorded one.
func TestA11_NoPositionBeforeTheServerIsAccepted(t *testing.T) {
	store, err := checkpoint.OpenContext(t.Context(), t.TempDir(), checkpoint.Options{})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, store.Close()) }()
	id := server.ID{Flavor: outbox.MySQL, UUID: "u", ServerID: 1}
	testkit.Must(t, store.Reset(id, outbox.Position{File: "log.000001", Offset: 500}, 0, "test"))
	held := NewHeldLease(LeaseParts{State: store, Log: zap.NewNop(), Fence: &Fence{}})
	if r := held.resume(); !r.At.IsZero() || r.Source != (server.ID{}) {
		t.Errorf("before: %+v", r)
	}
	testkit.Must(t, held.Begin(t.Context())) // without a grant, which renews nothing
	if r := held.resume(); r.At.IsZero() || r.Source != id {
		t.Errorf("afterwards: %+v", r)
	}
}
