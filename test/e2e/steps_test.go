package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/reconcile"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// firstStart: rows that were PENDING before the relay ever ran come from the sweep, once.
func (w *world) firstStart(t *testing.T) {
	w.load.Loose = true
	w.load.Run(t, 300, 2)
	testkit.Must(t, w.db.Purge(t.Context())) // the log could not deliver them
	w.relay.Start(t)
	w.once(t)
	w.quiet(t)
	gaps, err := w.relay.Client().Gaps(t.Context())
	testkit.Must(t, err)
	if len(gaps) != 1 || gaps[0].Cause != outbox.GapFirstStart || !gaps[0].Acknowledged {
		t.Errorf("gaps after a first start: %+v", gaps)
	}
	w.load.Loose = false
}

// tenThousand: the ordinary work, by the log alone but for the rows that were rewritten in their transaction.
func (w *world) tenThousand(t *testing.T) {
	rows := matrixRows
	if testing.Short() {
		rows = shortMatrixRows
	}
	began := time.Now()
	w.load.Run(t, rows, 4)
	wrote := time.Since(began)
	w.once(t)
	t.Logf("%d rows, written in %v, all SENT and compared after %v", w.load.Ledger.Len(), wrote.Round(time.Millisecond),
		time.Since(began).Round(time.Millisecond))
	w.quiet(t)
	s, err := w.relay.Status()
	testkit.Must(t, err)
	if s.State != "working" || len(s.Problems) != 0 || s.Throughput.Failed != 0 || s.Throughput.Retried != 0 {
		t.Errorf("status after undisturbed work: %+v", s)
	}
}

// kill: SIGKILL between the broker and the journal. After the next start only messages come again that the broker had taken and
// neither the journal nor the table knew (P3); it finds most of these in their topics. test/crash kills at the other points.
func (w *world) kill(t *testing.T) {
	w.relay.Stop(t)
	reached := w.relay.StartUntil(t, "before-journal", 5)
	w.load.RunUntil(t, w.relay, reached, 3)
	w.relay.Kill()
	journal, sent := w.relay.State(t).Journal, w.table.SentIDs(t)
	w.relay.Start(t)
	w.load.Run(t, 200, 3)
	account := w.settled(t)
	for id := range account.Copies {
		if journal[id] || sent[id] {
			t.Errorf("%s was sent again though the journal or the table knew it", id)
		}
	}
	found := int(w.relay.Metrics(t).Sum("read_back_found_total"))
	t.Logf("%d rows in the journal, %d messages found, %d sent again", len(journal), found, account.Duplicates())
	if account.Duplicates()+found == 0 {
		t.Error("nothing was found or sent again, so the process was not killed between the broker and the journal")
	}
	w.quiet(t)
}

// outage: the broker is killed and comes back. No row loses a try by it, and what was confirmed is not sent again.
func (w *world) outage(t *testing.T) {
	w.load.Loose = true // what the broker left unanswered may be overtaken
	wait := w.load.Start(t, 1500, 3)
	testkit.Must(t, w.broker.process.Kill())
	wait()
	testkit.WaitFor(t, patience, "the relay to notice the outage", func() bool {
		s, err := w.relay.Status()
		return err == nil && s.Sink.Breaker != "closed" && s.InFlight.AckPending == 0
	})
	sent := w.table.SentIDs(t)
	if len(sent) == w.load.Ledger.Len() {
		t.Fatal("the broker was not away while rows were written")
	}
	testkit.Must(t, w.broker.process.Start(t.Context()))
	account := w.settled(t)
	for id := range account.Copies {
		if sent[id] {
			t.Errorf("%s was sent again though it was SENT", id)
		}
	}
	t.Logf("%d messages sent again", account.Duplicates())
	w.quiet(t)
	w.load.Loose = false
}

// purgedAfterRead: logs that were read may be purged; that is no gap.
func (w *world) purgedAfterRead(t *testing.T) {
	w.load.Run(t, 100, 2)
	w.once(t)
	w.confirmed(t)
	w.relay.Stop(t)
	before := w.relay.State(t)
	testkit.Must(t, w.db.Purge(t.Context()))
	w.relay.Start(t)
	w.load.Run(t, 100, 2)
	w.once(t)
	gaps, err := w.relay.Client().Gaps(t.Context())
	testkit.Must(t, err)
	if len(gaps) != len(before.Gaps) {
		t.Errorf("a gap is on record though everything had been read up to %+v: %+v", before.Checkpoint, gaps[len(gaps)-1])
	}
	w.quiet(t)
}

// purged: the log is gone that the relay has not read. The sweep publishes its rows, and the gap is on record.
func (w *world) purged(t *testing.T) {
	w.relay.Stop(t)
	w.load.Loose = true
	w.load.Run(t, 500, 2)
	testkit.Must(t, w.db.Purge(t.Context()))
	w.relay.Start(t)
	w.once(t)
	w.load.Loose = false
	w.load.Run(t, 200, 2) // the log is followed again
	w.once(t)
	w.quiet(t)
	out, _, _ := w.relay.Command(t, "gaps", "list")
	if !strings.Contains(out, string(outbox.GapPurged)) {
		t.Errorf("gaps list does not show the gap:\n%s", out)
	}
	end := relay.LogEnd(t, w.sql)
	w.relay.Stop(t)
	state := w.relay.State(t)
	if !slices.ContainsFunc(state.Gaps, func(g outbox.Gap) bool { return g.Cause == outbox.GapPurged && !g.Acknowledged }) {
		t.Errorf("no gap is on record: %+v", state.Gaps)
	}
	if len(state.Journal) != 0 || state.Checkpoint.Compare(end) != 0 || !w.sameGTIDs(t, state.Checkpoint, end) {
		t.Errorf("a stop left %d journal entries and the checkpoint %+v, the log ends at %+v", len(state.Journal), state.Checkpoint, end)
	}
	w.logTellsNoSecrets(t)
}

// reconcile: the command finds what the account has: every message, and the copies that the kills have left.
func (w *world) reconcile(t *testing.T) {
	out, errOut, code := w.relay.Command(t, "reconcile", "--from", "3h", "-o", "json")
	var r reconcile.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("code %d, %v: %s", code, err, errOut)
	}
	var sum reconcile.Group
	for _, g := range r.Tables {
		sum.Sent, sum.Missing, sum.Different = sum.Sent+g.Sent, sum.Missing+g.Missing, sum.Different+g.Different
		sum.Repeated, sum.Copies = sum.Repeated+g.Repeated, sum.Copies+g.Copies
	}
	copies := 0
	for _, n := range w.copies {
		copies += n
	}
	want := reconcile.Group{Sent: int64(w.load.Ledger.Len()), Repeated: int64(len(w.copies)), Copies: int64(copies)}
	if sum != want || len(r.Extra) != 0 || len(r.Tables) != 2 || (code == 0) != (copies == 0) {
		t.Errorf("code %d, counted %+v, want %+v; extra %+v, notes %q", code, sum, want, r.Extra, r.Notes)
	}
	testkit.Exec(t, w.sql, "UPDATE "+w.table.Name()+" SET status = 2, topic = ? WHERE topic = ? ORDER BY id DESC LIMIT 1", w.topics[0], w.topics[1])
	out, _, code = w.relay.Command(t, "reconcile", "--from", "3h", "--limit", "1")
	if code != 1 || !strings.Contains(out, "missing ") || !strings.Contains(out, "not equal") {
		t.Errorf("a row names another topic than it was sent to: code %d\n%s", code, out)
	}
}

// once waits until all is settled and checks that nothing was sent twice.
func (w *world) once(t *testing.T) {
	t.Helper()
	if account := w.settled(t); account.Duplicates() != 0 {
		t.Errorf("%d messages were sent twice, and nothing excuses that: %v", account.Duplicates(), account.Copies)
	}
}

// logTellsNoSecrets looks for bodies, headers, the password and query text in the relay's log (A53).
func (w *world) logTellsNoSecrets(t *testing.T) {
	t.Helper()
	log := w.relay.Log(t)
	for _, canary := range []string{"secret", "first form", "last form", "traceparent", "Grüße", "large large", `"price"`, "INSERT INTO"} {
		if strings.Contains(log, canary) {
			t.Errorf("the log shows %q", canary)
		}
	}
}
