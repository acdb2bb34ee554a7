package tracker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// account is a tracker that a test drives as the reader, dispatch and ack do. It replaces Sweeps.
type account struct {
	*Tracker
	t        *testing.T
	next     uint64                     // number of the last transaction
	sent     map[outbox.Identity]*Entry // given to the sink
	triggers int
	asked    []time.Duration // of DueIn
}

func (a *account) Trigger() { a.triggers++ }

func (a *account) DueIn(_ outbox.Identity, d time.Duration) { a.asked = append(a.asked, d) }

func newAccount(t *testing.T) *account {
	a := &account{t: t, sent: map[outbox.Identity]*Entry{}}
	tracker, err := New(outbox.MySQL, outbox.Position{File: "binlog.000001", Offset: 4}, a, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	a.Tracker = tracker
	return a
}

func row(id int) *outbox.Message {
	return &outbox.Message{
		Identity: outbox.Identity{Table: "shop.t", ID: fmt.Sprint(id), MessageID: fmt.Sprint("m", id)}, Topic: "orders", Body: []byte("x"),
	}
}

// logOnly is a row of a table without a status.
func logOnly(id int) *outbox.Message {
	m := row(id)
	m.LogOnly = true
	return m
}

// txn makes the next transaction of the log.
func (a *account) txn(rows ...*outbox.Message) *outbox.Txn {
	a.next++
	return &outbox.Txn{End: end(a.next), GTID: outbox.GTID{Source: uuid, Seq: a.next}, Messages: rows}
}

// give takes a transaction over whole, and returns its number and the ids of the rows that go to the sink.
func (a *account) give(txn *outbox.Txn) (seq uint64, ids []string) {
	seq = a.Begin(txn)
	for _, e := range a.Admit(seq, txn.Messages, nil) {
		a.sent[e.Row()] = e
		ids = append(ids, e.Row().ID)
	}
	if !txn.More {
		a.SetOffered(txn.End)
	}
	return seq, ids
}

// offer gives the next transaction; want are the rows that had no owner.
func (a *account) offer(want string, rows ...*outbox.Message) {
	a.t.Helper()
	if _, ids := a.give(a.txn(rows...)); fmt.Sprint(ids) != want {
		a.t.Fatalf("rows %v go to the sink, want %v", ids, want)
	}
}

// complete makes the completions of rows, as dispatch does after the sink's answer.
func (a *account) complete(action outbox.Action, rows ...*outbox.Message) (list []outbox.Completion) {
	for _, m := range rows {
		e := a.sent[m.Identity]
		a.Complete(e)
		list = append(list, outbox.Completion{Identity: e.Row(), Action: action, LogOnly: e.LogOnly, Entry: e})
	}
	return list
}

// finish settles and writes rows, as ack does.
func (a *account) finish(action outbox.Action, rows ...*outbox.Message) {
	list := a.complete(action, rows...)
	a.Settled(list)
	a.Written(list)
}

// journal does what ack does with a batch of sent rows: it returns what the journal holds afterwards, given what it held before.
func (a *account) journal(held []string, rows ...*outbox.Message) []string {
	passed := a.Passed()
	list := a.complete(outbox.ActionMarkSent, rows...)
	a.Settled(list)
	a.Checkpoint()
	for _, c := range passed {
		held = slices.DeleteFunc(held, func(id string) bool { return id == c.ID })
	}
	for _, c := range list {
		held = append(held, c.ID)
	}
	a.Written(passed)
	return held
}

// candidates are rows as a sweep finds them.
func candidates(rows ...*outbox.Message) (list []outbox.Candidate) {
	for _, m := range rows {
		list = append(list, outbox.Candidate{Identity: m.Identity})
	}
	return list
}

func (a *account) wantCheckpoint(offset uint64, gtids string) {
	a.t.Helper()
	if at, _, _ := a.Checkpoint(); at.Offset != offset || at.GTIDs != gtids {
		a.t.Fatalf("checkpoint %v %s, want %d %s", at, at.GTIDs, offset, gtids)
	}
}
