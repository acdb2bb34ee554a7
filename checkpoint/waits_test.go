package checkpoint

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Waits outlive the process, without its end being in order; what was dropped, or has expired, does not come back.
func TestWaitsOutliveTheProcess(t *testing.T) {
	files := vfs.NewCrashableMem()
	s := openMem(t, files)
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	row := func(id string, due time.Time) table.Waiting {
		return table.Waiting{Identity: outbox.Identity{Table: "a.b", ID: id, MessageID: "m:" + id}, Wait: table.Wait{Due: due, Attempts: 3}}
	}
	if err := s.Waits.Keep([]table.Waiting{row("1", due), row("2", due), row("3", due.Add(-48*time.Hour))}, nil); err != nil {
		t.Fatal(err)
	}
	crashed := openMem(t, files.CrashClone(vfs.CrashCloneCfg{})) // what was synced, and nothing more
	if n, _ := crashed.Waits.Waiting("a.b", time.Now()); n != 2 {
		t.Errorf("after a crash %d rows wait", n)
	}
	fatal(t, crashed.Close())
	fatal(t, s.Waits.Keep(nil, []outbox.Identity{row("2", due).Identity}))
	fatal(t, s.Close())
	s = openMem(t, files)
	if w, ok := s.Waits.Wait(row("1", due).Identity); !ok || !w.Due.Equal(due) || w.Attempts != 3 {
		t.Errorf("%+v, %v", w, ok)
	}
	if _, ok := s.Waits.Wait(row("2", due).Identity); ok {
		t.Error("a wait that was dropped is there")
	}
	if n, longest := s.Waits.Waiting("a.b", time.Now()); n != 1 || longest > time.Hour {
		t.Errorf("%d rows wait, at most %v", n, longest)
	}
	if err := s.Waits.Keep([]table.Waiting{row("4", due)}, nil); err != nil { // prunes, on the disk as well
		t.Fatal(err)
	}
	left := 0
	if err := s.files.scan(kindWait, kindWait, func(_, _ []byte) error { left++; return nil }); err != nil || left != 2 {
		t.Errorf("%d records, %v", left, err)
	}
	fatal(t, s.Close())
}

// The counts of redeliveries outlive the process, in addition to the waits and separate from them.
func TestRedeliveriesOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := func(n string) outbox.Identity { return outbox.Identity{Table: "a.b", ID: n, MessageID: "m" + n} }
	at := time.UnixMilli(1_800_000_000_000)
	put := []table.Waiting{{Identity: id("1"), Wait: table.Wait{Due: at, Attempts: 2}}, {Identity: id("2"), Wait: table.Wait{Due: at, Attempts: 1}}}
	if err := errors.Join(s.Waits.KeepRedeliveries(put, nil), s.Waits.KeepRedeliveries(nil, []outbox.Identity{id("2"), id("3")}), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, err := s.Waits.Redeliveries()
	if err != nil || len(all) != 1 || all[0].Identity != id("1") || all[0].Attempts != 2 || !all[0].Due.Equal(at) {
		t.Errorf("%+v, %v", all, err)
	}
	if _, waits := s.Waits.Wait(id("1")); waits {
		t.Error("the row waits")
	}
}
