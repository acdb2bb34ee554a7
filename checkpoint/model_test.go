package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

func TestMain(m *testing.M) {
	if second() {
		return
	}
	goleak.VerifyTestMain(m)
}

const stateDir = "lib/state"

// contents is everything a Store holds that a crash may not tear, in comparable form.
type contents struct {
	Source     server.ID
	Checkpoint outbox.Position
	Journal    []string // sorted
	Gaps       int
	Moves      []string // reasons of history entries
	Schema     string
	generation uint64 // of the last move
}

func read(t testing.TB, s *Store) contents {
	t.Helper()
	var c contents
	c.Source, _ = s.Source()
	c.Checkpoint, _ = s.Checkpoint()
	journal, err := s.Journal()
	fatal(t, err)
	for _, e := range journal {
		c.Journal = append(c.Journal, fmt.Sprint(e.Table, e.ID, e.MessageID, "=", e.BrokerID))
	}
	slices.Sort(c.Journal)
	gaps, err := s.Gaps()
	fatal(t, err)
	c.Gaps = len(gaps)
	history, err := s.History()
	fatal(t, err)
	for _, e := range history {
		if e.Reason != "" {
			c.Moves = append(c.Moves, e.Reason)
		}
	}
	schemas, err := s.Schemas.All()
	fatal(t, err)
	c.Schema = string(schemas["shop.t"])
	stats := s.Stats()
	if stats.JournalEntries != len(journal) || stats.HistoryEntries != len(history) || stats.UnacknowledgedGaps != len(gaps) {
		t.Fatalf("counted %+v, but there are %d, %d and %d", stats, len(journal), len(history), len(gaps))
	}
	return c
}

// step is one write and what it makes of the contents.
type step func(s *Store, c *contents) error

// script is a reproducible random history of writes; scripts of different numbers may follow each other in one store.
func script(rng *rand.Rand, number uint64, n int) []step {
	steps := make([]step, n)
	var pending []outbox.Identity
	offset := 4 + number<<32
	for i := range steps {
		switch roll := rng.IntN(20); {
		case roll == 0:
			steps[i] = func(s *Store, c *contents) error {
				c.Gaps++
				_, err := s.AddGap(outbox.Gap{Cause: outbox.GapPurged})
				return err
			}
		case roll == 1:
			id, p := server.ID{Flavor: outbox.MySQL, UUID: fmt.Sprint("server-", i)}, outbox.Position{File: "binlog.000001", Offset: offset}
			steps[i] = func(s *Store, c *contents) error { return move(s, c, id, p, fmt.Sprint("move ", i)) }
		case roll == 2:
			blob := strings.Repeat("column ", 1+rng.IntN(900)) // several WAL blocks
			steps[i] = func(s *Store, c *contents) error { c.Schema = blob; return s.Schemas.Save("shop.t", []byte(blob)) }
		default:
			offset += uint64(1 + rng.IntN(1000))
			var sent []outbox.Completion
			for j := range rng.IntN(6) {
				id := outbox.Identity{Table: "shop.t", ID: fmt.Sprint(number, "-", i, "-", j), MessageID: "m"}
				sent = append(sent, outbox.Completion{Identity: id, BrokerID: fmt.Sprint("b", i)})
			}
			confirm, rest := lot(rng, pending)
			again, _ := lot(rng, pending) // those that are not confirmed get another id of the broker
			for _, id := range again[:len(again)/4] {
				sent = append(sent, outbox.Completion{Identity: id, BrokerID: fmt.Sprint("again", i)})
				rest = slices.DeleteFunc(rest, func(other outbox.Identity) bool { return other == id })
			}
			pending = rest
			for _, e := range sent {
				pending = append(pending, e.Identity)
			}
			p := outbox.Position{File: "binlog.000001", Offset: offset}
			late := roll == 3 // the position was read before the last move
			steps[i] = func(s *Store, c *contents) error { return commit(s, c, sent, confirm, p, late) }
		}
	}
	return steps
}

// lot divides a list at random, nearly always into the first and the last of it.
func lot(rng *rand.Rand, list []outbox.Identity) (some, others []outbox.Identity) {
	n, mixed := rng.IntN(len(list)+1), rng.IntN(4) == 0
	for i, id := range list {
		if mixed && rng.IntN(2) == 0 || !mixed && i < n {
			some = append(some, id)
		} else {
			others = append(others, id)
		}
	}
	return some, others
}

func move(s *Store, c *contents, id server.ID, p outbox.Position, reason string) error {
	if !c.Checkpoint.IsZero() {
		c.Moves = slices.Insert(slices.Clone(c.Moves), 0, "before: "+reason)
	}
	c.Moves = slices.Insert(slices.Clone(c.Moves), 0, reason)
	c.Source, c.Checkpoint, c.generation = id, p, c.generation+1
	return s.Reset(id, p, c.generation, reason)
}

func commit(s *Store, c *contents, sent []outbox.Completion, written []outbox.Identity, p outbox.Position, late bool) error {
	journal := slices.Clone(c.Journal)
	leave := func(id outbox.Identity) {
		journal = slices.DeleteFunc(journal, func(line string) bool {
			return strings.HasPrefix(line, fmt.Sprint(id.Table, id.ID, id.MessageID, "="))
		})
	}
	for _, id := range written {
		leave(id)
	}
	for _, e := range sent {
		leave(e.Identity)
		journal = append(journal, fmt.Sprint(e.Table, e.ID, e.MessageID, "=", e.BrokerID))
	}
	slices.Sort(journal)
	c.Journal = journal
	if late {
		return s.Commit(sent, written, &p, c.generation+1000)
	}
	c.Checkpoint = p
	return s.Commit(sent, written, &p, c.generation)
}

func same(a, b contents) bool {
	if len(a.Journal) == 0 && len(b.Journal) == 0 {
		a.Journal, b.Journal = nil, nil
	}
	a.generation, b.generation = 0, 0 // it is of one run
	return reflect.DeepEqual(a, b)
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustNotFail is an OnFatal for tests in which the disk is sound.
func mustNotFail(t testing.TB) func(error) {
	return func(err error) { t.Errorf("the store failed: %v", err) }
}

func openMem(t testing.TB, files vfs.FS) *Store {
	t.Helper()
	s, err := Open(stateDir, Options{FS: files, OnFatal: mustNotFail(t), Simulated: true})
	fatal(t, err)
	return s
}

func at(offset uint64) *outbox.Position {
	return &outbox.Position{File: "binlog.000001", Offset: offset}
}
