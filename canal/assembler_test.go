package canal

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// drawHistory draws transactions of all kinds, and the rows that they must release.
func drawHistory(t *rapid.T) (lines, rows []string) {
	id := 0
	next := func() string { id++; return fmt.Sprint(id) }
	for n := range rapid.IntRange(1, 12).Draw(t, "transactions") {
		gtid := fmt.Sprintf("gtid u#%d", n+1)
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0: // foreign
			lines = append(lines, gtid, "begin", "nothing", "commit")
		case 1: // DDL
			lines = append(lines, gtid, "statement")
		case 2: // our own status update
			lines = append(lines, gtid, "begin", "nothing", "change t", "commit")
		case 3: // rolled back
			lines = append(lines, gtid, "begin", "insert t "+next(), "rollback")
		case 4: // MariaDB
			a := next()
			lines, rows = append(lines, gtid+" begun", "nothing", "insert t "+a, "nothing", "commit"), append(rows, a)
		case 5: // compressed
			a, b := next(), next()
			lines, rows = append(lines, gtid, "begin", "insert t "+a, "insert other "+b, "commit", "payload-end"), append(rows, a, b)
		default: // many row events
			lines = append(lines, gtid, "begin")
			for range rapid.IntRange(1, 5).Draw(t, "events") {
				a := next()
				lines, rows = append(lines, "insert t "+a, "nothing"), append(rows, a)
			}
			lines = append(lines, "commit")
		}
	}
	return lines, rows
}

// A01, A04: the reader stops after any event and resumes after the last transaction it offered. Every row is offered once and in
// order, and the reported GTIDs are those of complete transactions.
func TestA01_A04_StopBehindAnyEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines, want := drawHistory(t)
		cut := rapid.IntRange(0, len(lines)).Draw(t, "cut")
		var got []string
		set := outbox.NewGTIDSet(outbox.MySQL)
		resume := 0
		feed := func(p *player, from, to int) {
			p.at.Offset = uint64(1000 + 100*from)
			p.last = p.at
			for i := from; i < to; i++ {
				ev, err := p.parse(lines[i])
				if err != nil {
					t.Fatal(err)
				}
				txn, err := p.feed(ev)
				if err != nil {
					t.Fatalf("%s: %v", lines[i], err)
				}
				if txn == nil {
					continue
				}
				for _, m := range txn.Messages {
					got = append(got, m.ID)
				}
				one := outbox.NewGTIDSet(set.Flavor())
				if one.Add(txn.GTID); set.Contains(one) {
					t.Fatalf("%v came twice", txn.GTID)
				}
				set.Add(txn.GTID)
				if txn.End.Offset != uint64(1000+100*(i+1)) {
					t.Fatalf("transaction behind event %d ends at %d", i+1, txn.End.Offset)
				}
				resume = i + 1
				if i+1 < len(lines) && lines[i+1] == "payload-end" {
					resume++
				}
			}
		}
		feed(newPlayer(), 0, cut)
		if cut < len(lines) && lines[cut] == "payload-end" {
			resume = max(resume, cut+1) // the server sends the payload as one event
		}
		feed(newPlayer(), resume, len(lines))
		if !slices.Equal(got, want) {
			t.Fatalf("cut behind %d: rows %v, want %v", cut, got, want)
		}
	})
}

// Whatever the events, the assembler does not fail and does not assign rows to the wrong transaction.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte{2, 3, 4, 6, 2, 9, 3})
	f.Add([]byte{2, 3, 4, 5, 4, 6, 2, 3, 4, 11, 12})
	f.Fuzz(func(t *testing.T, kinds []byte) {
		p := newPlayer()
		tables := []*mapped{p.table("a"), p.table("b")}
		inserted, released := 0, 0
		for i, k := range kinds {
			p.at.Offset += 100
			ev := &event{kind: kind(k & 15), end: p.at, begun: k&16 != 0, table: tables[k>>5&1], gtid: outbox.GTID{Source: "u", Seq: uint64(i)}}
			switch ev.kind {
			case kindInsert:
				inserted++
				ev.rows = fakeRows{fmt.Sprint(i)}
			case kindStatement:
				ev.names = tables[:k>>6&1]
			case kindBegin, kindXACommit, kindXARollback:
				ev.xid = fmt.Sprint(k >> 4 & 3)
			case kindPrepare:
				ev.final = k&16 != 0
			}
			txn, err := p.feed(ev)
			if err != nil {
				return
			}
			if txn == nil {
				continue
			}
			if p.open && ev.kind != kindGTID {
				t.Fatal("a transaction ended and is open")
			}
			released += len(txn.Messages)
			for _, l := range txn.Deferred {
				released += l.Rows
				if l.Table == "" && ev.kind != kindXACommit || l.Cause == "" {
					t.Fatalf("deferred %+v", l)
				}
			}
		}
		if released > inserted {
			t.Fatalf("%d rows out of %d", released, inserted)
		}
	})
}
