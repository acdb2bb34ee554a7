package checkpoint

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// C06: whatever order commits arrive in, the checkpoint is the furthest one seen, and stays it over a restart.
func TestC06_CommitsInRandomOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		files := vfs.NewMem()
		s := openMem(t, files)
		defer func() { fatal(t, s.Close()) }()
		var furthest outbox.Position
		for _, n := range rapid.SliceOfN(rapid.Uint64Range(1, 30), 1, 20).Draw(rt, "positions") {
			p := outbox.Position{File: fmt.Sprintf("binlog.%06d", 999_998+n%3), Offset: n}
			fatal(t, s.Commit(nil, nil, &p, 0))
			if p.Compare(furthest) > 0 {
				furthest = p
			}
			if got, _ := s.Checkpoint(); got != furthest {
				rt.Fatalf("the checkpoint is %v after %v", got, furthest)
			}
		}
		fatal(t, s.Close())
		s = openMem(t, files)
		if got, _ := s.Checkpoint(); got != furthest {
			rt.Fatalf("after the restart the checkpoint is %v, not %v", got, furthest)
		}
	})
}

// C06: after a failover file numbers may be lower; the executed sets tell what is forward.
func TestC06_FailoverToLowerFileNumbers(t *testing.T) {
	const a, b = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4f22fa47-71ca-11e1-9e33-c80aa9429562"
	s := openMem(t, vfs.NewMem())
	old := outbox.Position{File: "binlog.000042", Offset: 900, GTIDs: a + ":1-100"}
	fatal(t, s.Reset(server.ID{Flavor: outbox.MySQL, UUID: a}, old, 0, "first start"))
	fatal(t, s.SetSource(server.ID{Flavor: outbox.MySQL, UUID: b}))
	for _, c := range []struct {
		p       outbox.Position
		forward bool
	}{
		{outbox.Position{File: "mysql-bin.000001", Offset: 300}, false},                                  // says nothing of the set
		{outbox.Position{File: "mysql-bin.000001", Offset: 300, GTIDs: a + ":1-99"}, false},              // less
		{outbox.Position{File: "mysql-bin.000001", Offset: 300, GTIDs: b + ":1-7"}, false},               // something else
		{outbox.Position{File: "mysql-bin.000001", Offset: 300, GTIDs: a + ":1-100," + b + ":1"}, true},  // more
		{outbox.Position{File: "mysql-bin.000001", Offset: 200, GTIDs: a + ":1-100," + b + ":1"}, false}, // the same set
		{old, false}, // a late call
		{outbox.Position{File: "mysql-bin.000001", Offset: 500, GTIDs: a + ":1-100," + b + ":1-2"}, true},
	} {
		before, _ := s.Checkpoint()
		fatal(t, s.Commit(nil, nil, &c.p, 0))
		if got, _ := s.Checkpoint(); (got == c.p) != c.forward || (got == before) == c.forward {
			t.Errorf("from %v, %+v: now at %+v", before, c.p, got)
		}
	}
	fatal(t, s.Close())
}

// C07: what a later release wrote is refused as such and not taken for damage.
func TestC07_NewerRelease(t *testing.T) {
	t.Run("engine format", func(t *testing.T) {
		files := vfs.NewMem()
		fatal(t, openMem(t, files).Close())
		_, err := files.Create(fmt.Sprintf("%s/%s/marker.format-version.000099.%03d", stateDir, engineDir, engineFormat+1), vfs.WriteCategoryUnspecified)
		fatal(t, err)
		mustBeNewer(t, files)
	})
	for name, key := range map[string]string{"record version": "s", "kind of record": "z"} {
		t.Run(name, func(t *testing.T) {
			files := vfs.NewMem()
			s := openMem(t, files)
			value := []byte("....\x02{}")
			if name == "kind of record" {
				value[4] = recordVersion
			}
			seal([]byte(key), value)
			if name == "record version" {
				value[4] = recordVersion + 1
				resum([]byte(key), value)
			}
			fatal(t, s.files.db.Set([]byte(key), value, pebble.Sync))
			fatal(t, s.Close())
			mustBeNewer(t, files)
		})
	}
}

func resum(key, value []byte) {
	n := sum(key, value)
	value[0], value[1], value[2], value[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
}

func mustBeNewer(t *testing.T, files vfs.FS) {
	t.Helper()
	_, err := Open(stateDir, Options{FS: files, Simulated: true})
	var corrupt *CorruptError
	if !errors.Is(err, ErrNewer) || errors.As(err, &corrupt) {
		t.Fatalf("Open: %v", err)
	}
}

// C05: after damage the way on is Quarantine and a new store that says what it replaces; the damaged one is still there.
func TestC05_Quarantine(t *testing.T) {
	files := vfs.NewMem()
	for n := range 2 {
		s := openMem(t, files)
		fatal(t, s.Commit(nil, nil, at(100), 0))
		fatal(t, s.files.db.Set([]byte("c"), []byte("not a record"), pebble.Sync))
		fatal(t, s.Close())
		_, err := Open(stateDir, Options{FS: files, Simulated: true})
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Fatalf("Open: %v", err)
		}
		aside, err := Quarantine(stateDir, files)
		fatal(t, err)
		s = openMem(t, files)
		if _, ok := s.Checkpoint(); ok || s.Origin().Quarantined != aside {
			t.Fatalf("the new store has origin %+v", s.Origin())
		}
		fatal(t, s.Close())
		names, err := files.List(stateDir)
		fatal(t, err)
		if len(names) != n+2 {
			t.Fatalf("the directory holds %q", names)
		}
	}
}

// C05: a store whose manifest marker is gone, or whose first record is, is not quietly replaced by an empty one.
func TestC05_PartOfTheStoreIsGone(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, files *vfs.MemFS){
		"marker": func(t *testing.T, files *vfs.MemFS) {
			names, err := files.List(stateDir + "/" + engineDir)
			fatal(t, err)
			for _, name := range names {
				if strings.HasPrefix(name, "marker.manifest") {
					fatal(t, files.Remove(stateDir+"/"+engineDir+"/"+name))
				}
			}
		},
		"first record": func(t *testing.T, files *vfs.MemFS) {
			s := openMem(t, files)
			fatal(t, s.files.db.Delete([]byte{kindOrigin}, pebble.Sync))
			fatal(t, s.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := vfs.NewMem()
			s := openMem(t, files)
			fatal(t, s.Commit(nil, nil, at(100), 0))
			fatal(t, s.Close())
			harm(t, files)
			for _, readOnly := range []bool{true, false} {
				_, err := Open(stateDir, Options{FS: files, Simulated: true, readOnly: readOnly})
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) {
					t.Fatalf("Open, read-only %v: %v", readOnly, err)
				}
			}
		})
	}
}

func TestCommitWritesNothingForNothing(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	fatal(t, s.Commit(nil, nil, at(100), 0))
	written := s.files.db.Metrics().WAL.BytesIn
	fatal(t, s.Commit(nil, nil, nil, 0))
	fatal(t, s.Commit(nil, nil, at(100), 0))
	fatal(t, s.Commit(nil, nil, at(99), 0))
	fatal(t, s.Commit(nil, []outbox.Identity{{Table: "shop.t", ID: "never sent"}}, nil, 0))
	if now := s.files.db.Metrics().WAL.BytesIn; now != written {
		t.Fatalf("%d bytes were written", now-written)
	}
	fatal(t, s.Close())
}

// The journal is proof of delivery: nothing else gets in.
func TestCommitTakesOnlySentRows(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	sent := []outbox.Completion{{Action: outbox.ActionMarkSent}, {Action: outbox.ActionRetry}}
	if err := s.Commit(sent, nil, at(5), 0); err == nil {
		t.Fatal("a refused row entered the journal")
	}
	if got := read(t, s); !same(got, contents{}) {
		t.Fatalf("the refused call left %+v", got)
	}
	fatal(t, s.Close())
}

// Identities that are the same when their parts are joined are still apart.
func TestJournalKeepsOddIdentitiesApart(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	ids := []outbox.Identity{
		{Table: "a", ID: "bc", MessageID: "d"},
		{Table: "ab", ID: "c", MessageID: "d"},
		{Table: "a", ID: "b", MessageID: "cd"},
		{Table: "a\x00", ID: "b"},
		{Table: "a", ID: "\x00b"},
		{},
		{MessageID: "\xff\x00"},
		{ID: strings.Repeat("9", 300)},
	}
	for i, id := range ids {
		fatal(t, s.Commit([]outbox.Completion{{Identity: id, BrokerID: fmt.Sprint(i)}}, nil, nil, 0))
	}
	fatal(t, s.Close())
	s = openMem(t, files)
	journal, err := s.Journal()
	fatal(t, err)
	if len(journal) != len(ids) {
		t.Fatalf("%d entries for %d identities", len(journal), len(ids))
	}
	for _, e := range journal {
		if e.BrokerID != fmt.Sprint(indexOf(ids, e.Identity)) || e.Action != outbox.ActionMarkSent {
			t.Errorf("%+v", e)
		}
		fatal(t, s.Commit(nil, []outbox.Identity{e.Identity}, nil, 0))
	}
	if n := s.Stats().JournalEntries; n != 0 {
		t.Fatalf("%d entries are left", n)
	}
	fatal(t, s.Close())
}

func indexOf(ids []outbox.Identity, id outbox.Identity) int {
	for i := range ids {
		if ids[i] == id {
			return i
		}
	}
	return -1
}

// Readers, writers and Close from many goroutines: no race, no panic of the engine, and ErrClosed in the end.
func TestConcurrentUse(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	fatal(t, s.Commit(nil, nil, at(1), 0))
	calls := []func(i uint64) error{
		func(i uint64) error { return s.Commit(nil, nil, at(i+10), 0) },
		func(uint64) error { _, err := s.AddGap(outbox.Gap{Cause: outbox.GapPurged}); return err },
		func(uint64) error { _, err := s.Journal(); return err },
		func(uint64) error { _, err := s.History(); return err },
		func(uint64) error { s.Stats(); s.Checkpoint(); s.Source(); return s.AckGap(1) },
	}
	_, err := s.AddGap(outbox.Gap{Cause: outbox.GapPurged})
	fatal(t, err)
	var working, ended sync.WaitGroup
	for _, call := range calls {
		working.Add(1)
		ended.Go(func() {
			for i := uint64(0); ; i++ {
				err := call(i)
				if i == 20 {
					working.Done()
				}
				if errors.Is(err, ErrClosed) && i >= 20 {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	fatal(t, s.Close())
	ended.Wait()
	fatal(t, s.Close())
	if n := s.Stats(); n.DiskBytes != 0 || n.UnacknowledgedGaps == 0 {
		t.Errorf("after Close: %+v", n)
	}
}

// Thirty random scripts over restarts: contents and counts agree with the model at each.
func TestRestartsKeepEverything(t *testing.T) {
	files := vfs.NewMem()
	var now contents
	for run := range uint64(30) {
		s, err := Open(stateDir, Options{FS: files, OnFatal: mustNotFail(t), Simulated: run%2 == 0})
		fatal(t, err)
		if got := read(t, s); !same(got, now) {
			t.Fatalf("run %d starts with\n%+v\nwant\n%+v", run, got, now)
		}
		now.generation = 0
		for _, step := range script(rand.New(rand.NewPCG(run, 1)), run, 40) {
			fatal(t, step(s, &now))
		}
		fatal(t, s.Close())
	}
}

// A row that an operator resets is written and sent again; when both fall into one batch, the new entry must stay.
func TestARowWrittenAndSentAgainStaysInTheJournal(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	one := outbox.Completion{Identity: outbox.Identity{Table: "shop.t", ID: "1", MessageID: "m1"}}
	fatal(t, s.Commit([]outbox.Completion{one}, nil, nil, 0))
	fatal(t, s.Commit([]outbox.Completion{one}, []outbox.Identity{one.Identity}, nil, 0))
	if list, err := s.Journal(); err != nil || len(list) != 1 || s.Stats().JournalEntries != 1 {
		t.Fatalf("journal %v, %d counted, %v", list, s.Stats().JournalEntries, err)
	}
	fatal(t, s.Close())
}

// A checkpoint that was read before a Reset of the position is not written after it, even if it lies ahead.
func TestCommitOfAnOlderEpochLeavesTheCheckpointAlone(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	id := server.ID{Flavor: outbox.MySQL, UUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562"}
	fatal(t, s.Reset(id, *at(100), 0, "first start"))
	fatal(t, s.Reset(id, *at(50), 1, "operator"))
	one := outbox.Completion{Identity: outbox.Identity{Table: "shop.t", ID: "1"}}
	fatal(t, s.Commit([]outbox.Completion{one}, nil, at(200), 0))
	if p, _ := s.Checkpoint(); p != *at(50) {
		t.Errorf("the checkpoint is %v after a commit of an older generation", p)
	}
	if list, err := s.Journal(); err != nil || len(list) != 1 {
		t.Errorf("the journal has %d entries (%v): the sent row belongs there whatever the generation", len(list), err)
	}
	fatal(t, s.Commit(nil, nil, at(60), 1))
	if p, _ := s.Checkpoint(); p != *at(60) {
		t.Errorf("the checkpoint is %v after a commit of its generation", p)
	}
	fatal(t, s.Close())
}
