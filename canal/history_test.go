package canal

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

var update = flag.Bool("update", false, "rewrite the expected halves of testdata/histories")

// fakeRows replaces the images of an insert event: one message per id; ids in brackets cannot be mapped.
type fakeRows []string

func (f fakeRows) count() int { return len(f) }

func (f fakeRows) messages(to []*outbox.Message) (out []*outbox.Message, unmapped int) {
	for _, id := range f {
		if strings.HasPrefix(id, "(") {
			unmapped++
			continue
		}
		to = append(to, &outbox.Message{Identity: outbox.Identity{ID: id}, Body: make([]byte, 1000)})
	}
	return to, unmapped
}

// logOnlyRows are rows of a table without a status.
type logOnlyRows []string

func (f logOnlyRows) count() int { return len(f) }

func (f logOnlyRows) messages(to []*outbox.Message) (out []*outbox.Message, unmapped int) {
	from := len(to)
	to, unmapped = fakeRows(f).messages(to)
	for _, m := range to[from:] {
		m.LogOnly = true
	}
	return to, unmapped
}

// player feeds lines of text to an assembler. Each line is one event of 100 bytes.
type player struct {
	*assembler
	tables map[string]*mapped
	at     outbox.Position
}

func newPlayer() *player {
	start := outbox.Position{File: "binlog.000001", Offset: 1000}
	return &player{assembler: newAssembler(10_000, start, map[string][]*mapped{}), tables: map[string]*mapped{}, at: start}
}

func (p *player) table(name string) *mapped {
	if p.tables[name] == nil {
		p.tables[name] = &mapped{name: "shop." + name, table: name, only: strings.HasPrefix(name, "log")}
	}
	return p.tables[name]
}

func (p *player) parse(line string) (*event, error) {
	word, rest, _ := strings.Cut(line, " ")
	args := strings.Fields(rest)
	p.at.Offset += 100
	ev := &event{end: p.at}
	kinds := map[string]kind{
		"nothing": kindNothing, "reset": kindReset, "gtid": kindGTID, "begin": kindBegin, "insert": kindInsert, "change": kindChange,
		"commit": kindCommit, "payload-end": kindPayloadEnd, "rollback": kindRollback, "statement": kindStatement,
		"prepare": kindPrepare, "xa-commit": kindXACommit, "xa-rollback": kindXARollback, "incident": kindIncident, "unknown": kindUnknown,
	}
	var known bool
	if ev.kind, known = kinds[word]; !known {
		return nil, fmt.Errorf("event %q is unknown", word)
	}
	switch ev.kind {
	case kindGTID:
		for _, arg := range args {
			if arg == "begun" {
				ev.begun = true
				continue
			}
			source, seq, _ := strings.Cut(arg, "#")
			n, err := strconv.ParseUint(seq, 10, 64)
			if err != nil {
				return nil, err
			}
			ev.gtid = outbox.GTID{Source: source, Seq: n}
		}
	case kindBegin, kindXACommit, kindXARollback:
		ev.xid = rest
	case kindPrepare:
		ev.final = rest == "one-phase"
	case kindInsert:
		ev.table, ev.rows = p.table(args[0]), fakeRows(args[1:])
		if ev.table.only {
			ev.rows = logOnlyRows(args[1:])
		}
	case kindChange:
		ev.table = p.table(args[0])
	case kindStatement:
		for _, name := range args {
			switch name {
			case "inserts":
				ev.inserts = true
				continue
			case "undo":
				ev.undo = true
				continue
			}
			ev.names = append(ev.names, p.table(name))
		}
	case kindUnknown:
		ev.typ = 172
	}
	return ev, nil
}

// play returns one line per transaction or gap.
func (p *player) play(t *testing.T, history string) string {
	t.Helper()
	var out strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(history), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		ev, err := p.parse(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		txn, err := p.feed(ev)
		var (
			gap   *gapError
			held  *heldError
			large *largeError
		)
		if errors.As(err, &held) {
			fmt.Fprintf(&out, "held %s %s before %d\n", held.table, held.cause, held.end.Offset)
			break
		}
		if errors.As(err, &large) {
			fmt.Fprintf(&out, "large, before %d\n", large.end.Offset)
			break
		}
		if errors.As(err, &gap) {
			fmt.Fprintf(&out, "gap %s\n", gap.cause)
			break
		}
		if txn != nil {
			out.WriteString(show(txn) + "\n")
		}
	}
	return out.String()
}

func show(txn *outbox.Txn) string {
	parts := []string{fmt.Sprintf("%d", txn.End.Offset)}
	if !txn.GTID.IsZero() {
		parts = append(parts, fmt.Sprintf("%s#%d", txn.GTID.Source, txn.GTID.Seq))
	}
	if len(txn.Messages) > 0 {
		var ids []string
		for _, m := range txn.Messages {
			ids = append(ids, m.ID)
		}
		parts = append(parts, "rows "+strings.Join(ids, " "))
	}
	for _, l := range txn.Deferred {
		parts = append(parts, fmt.Sprintf("deferred %s %s %d", cmp.Or(l.Table, "any"), l.Cause, l.Rows))
	}
	if txn.More {
		parts = append(parts, "more")
	}
	return strings.Join(parts, ", ")
}

// The files hold recorded event sequences and, after a line of dashes, the expected transactions.
func TestHistories(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			history, want, _ := strings.Cut(string(data), "----\n")
			got := newPlayer().play(t, history)
			if *update {
				if err := os.WriteFile(file, []byte(history+"----\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}
