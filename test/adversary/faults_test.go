package adversary

import (
	"database/sql"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/soak"
)

func (w *world) parts(i int) soak.Parts {
	return soak.Parts{Relay: w.relays[i], Proxy: w.proxies[i], Fake: w.fake, Server: w.server}
}

// broken causes a fault and returns the function that ends it.
func (w *world) broken(kind soak.Kind, i int) (fix func()) {
	w.t.Helper()
	mend, err := w.parts(i).Break(w.t, kind)
	w.must(err)
	return func() { w.must(mend()) }
}

func (w *world) must(err error) {
	w.t.Helper()
	testkit.Must(w.t, err)
}

func endRelay(end func(w *world, i int)) deed {
	return func(w *world, s Step, _ *rand.Rand) {
		w.begin(relayKey(s.Relay), s.Length, func() func() {
			end(w, s.Relay)
			return func() { w.relays[s.Relay].Launch(w.t) }
		})
	}
}

// stop ends a relay with SIGTERM, whatever else is broken.
func (w *world) stop(i int) {
	w.t.Helper()
	testkit.WaitFor(w.t, patience, "the relay to answer: before that SIGTERM ends it as it ends any process", func() bool {
		if !w.relays[i].Running() {
			w.t.Fatalf("relay %d has ended by itself:\n%s", i, w.relays[i].LogTail(30))
		}
		_, err := w.relays[i].Status()
		return err == nil
	})
	w.relays[i].Terminate(w.t)
	if code := w.relays[i].Wait(w.t); code != 0 {
		w.t.Errorf("relay %d ended with code %d after SIGTERM:\n%s", i, code, w.relays[i].LogTail(30))
	}
}

func freeze(w *world, s Step, _ *rand.Rand) {
	w.begin(relayKey(s.Relay), s.Length, func() func() { return w.broken(soak.FreezeRelay, s.Relay) })
}

func cut(w *world, s Step, _ *rand.Rand) {
	w.disturb()
	w.proxies[s.Relay].Cut()
}

func network(kind soak.Kind) deed {
	return func(w *world, s Step, _ *rand.Rand) {
		w.begin(networkKey(s.Relay), s.Length, func() func() { return w.broken(kind, s.Relay) })
	}
}

func brokerFault(kind soak.Kind) deed {
	return func(w *world, s Step, _ *rand.Rand) {
		if w.fake == nil && (kind == soak.LoseReplies || kind == soak.RefuseMessages) {
			return
		}
		w.begin("broker", s.Length, func() func() { return w.broken(kind, s.Relay) })
	}
}

// refuseKeys makes the broker refuse all rows of a partition: their keys wait.
func refuseKeys(w *world, s Step, r *rand.Rand) {
	if w.fake == nil {
		return
	}
	topic, partition := w.topics[r.IntN(len(w.topics))], r.Int32N(3)
	w.begin("broker", s.Length, func() func() {
		w.refused = true
		w.say("%s %d is refused", topic, partition)
		handle := w.fake.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Partitions: []int32{partition}, Err: kerr.UnknownServerError, Count: -1})
		return handle.Remove
	})
}

func killSessions(w *world, _ Step, _ *rand.Rand) {
	w.disturb()
	_, err := w.db.KillSessions(w.t.Context(), "USER LIKE 'relay%'")
	w.must(err)
}

// purge purges logs that no relay needs.
func purge(w *world, _ Step, _ *rand.Rand) {
	w.disturb()
	for _, statement := range []string{"FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY"} {
		if _, err := w.db.Root().ExecContext(w.t.Context(), statement); err != nil {
			w.say("%s: %v", statement, err)
		}
	}
}

// purgeUnread purges logs that no relay has read.
func purgeUnread(w *world, s Step, r *rand.Rand) {
	for i := range w.relays {
		if w.active[relayKey(i)] != nil {
			w.say("left out: relay %d is broken already", i)
			return
		}
	}
	w.disturb()
	for _, relay := range w.relays {
		relay.Kill()
	}
	for i := range 20 {
		w.write(s.Table, ordinary, i, r)
	}
	w.must(w.db.Purge(w.t.Context()))
	for _, relay := range w.relays {
		relay.Launch(w.t)
	}
}

// restartServer pauses the application meanwhile: it could not tell which of its transactions were committed.
func restartServer(w *world, _ Step, _ *rand.Rand) {
	if w.active["locks"] != nil {
		return
	}
	w.disturb()
	w.writing.Lock()
	defer w.writing.Unlock()
	w.must(w.db.Stop())
	w.must(w.db.Start(w.t.Context()))
}

// readOnly does not affect the application, which is root here.
func readOnly(w *world, s Step, _ *rand.Rand) {
	w.begin("read-only", s.Length, func() func() {
		testkit.Exec(w.t, w.db.Root(), "SET GLOBAL read_only = ON")
		return func() { testkit.Exec(w.t, w.db.Root(), "SET GLOBAL read_only = OFF") }
	})
}

// lockRows holds locks on some of the newest rows.
func lockRows(w *world, s Step, r *rand.Rand) {
	w.begin("locks", s.Length, func() func() {
		ids := w.choose(s.Table, "TRUE", 1+r.IntN(20))
		tx, err := w.pool(s.Table).BeginTx(w.t.Context(), nil)
		w.must(err)
		for _, id := range ids {
			var one sql.NullInt64
			if err := tx.QueryRowContext(w.t.Context(), "SELECT id FROM t_local_message WHERE id = ? FOR UPDATE NOWAIT", id.id).Scan(&one); err != nil && err != sql.ErrNoRows {
				break // another session holds it
			}
		}
		return func() { _ = tx.Rollback() } // a restart of the server ends it as well
	})
}
