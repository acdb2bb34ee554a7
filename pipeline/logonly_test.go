package pipeline_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// journal does what ack does with a batch: it returns what the journal holds afterwards, given what it held before.
func (b *bench) journal(held []string) []string {
	passed := b.Tracker.Passed()
	list := b.Acks.Take()
	b.Tracker.Settled(list)
	b.Tracker.Checkpoint()
	for _, c := range passed {
		held = slices.DeleteFunc(held, func(id string) bool { return id == c.ID })
	}
	for _, c := range list {
		held = append(held, c.ID)
	}
	b.Tracker.Written(passed)
	return held
}

// What the journal holds is skipped when the log shows it again; everything else of the window is published, without a look at the
// table. The entries leave when the checkpoint has passed the end that the log had when the stream was opened.
func TestLogOnlyRowsOfTheJournalAreSkipped(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Tracker.Own([]outbox.Completion{{Identity: flowtest.Row(1, flowtest.LogOnly).Identity, LogOnly: true}, {Identity: flowtest.Row(9, flowtest.LogOnly).Identity, LogOnly: true}})
		if err := b.Connected(b.Ctx, outbox.Position{File: "binlog.000001", Offset: 4}, flowtest.End(2)); err != nil {
			t.Fatal(err)
		}
		b.OfferRows(flowtest.Row(1, flowtest.LogOnly), flowtest.Row(2, flowtest.LogOnly))
		b.WantSent("2")
		held := b.journal(b.journal([]string{"1", "9"}))
		if fmt.Sprint(held) != "[1 9]" { // 2 was passed at once
			t.Fatalf("journal %v", held)
		}
		b.OfferRows(flowtest.Row(3, flowtest.LogOnly))
		if held = b.journal(b.journal(held)); len(held) != 0 || b.Snapshot().Owned != 0 {
			t.Fatalf("journal %v, %d owned", held, b.Snapshot().Owned)
		}
	})
}

// A transaction that is too large for memory comes in pieces. Their rows are sent at once; what was offered does not move, and certainly not back
// to the end of the transaction before, until the last piece was taken over.
func TestPiecesOfATransactionAreOfferedWithTheLast(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.OfferRows(flowtest.Row(1))
		b.Idle(flowtest.End(3))
		offer := func(end uint64, more bool, rows ...*outbox.Message) {
			t.Helper()
			if err := b.Offer(b.Ctx, &outbox.Txn{End: flowtest.End(end), Messages: rows, More: more}); err != nil {
				t.Fatal(err)
			}
		}
		offer(1, true, flowtest.Row(2, flowtest.LogOnly), flowtest.Row(3, flowtest.LogOnly))
		b.WantSent("1", "2", "3")
		if at := b.Tracker.Offered(); at != flowtest.End(3) {
			t.Errorf("offered %v inside the transaction", at)
		}
		offer(4, false, flowtest.Row(4, flowtest.LogOnly))
		b.WantSent("1", "2", "3", "4")
		if at := b.Tracker.Offered(); at != flowtest.End(4) {
			t.Errorf("offered %v at the end", at)
		}
	})
}
