package checkpoint

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// C04: the machine dies at any file operation, with any part of what was not synced on the disk. What returned is there,
// what did not is there whole or not at all.
func TestC04_CrashAtAnyFileOperation(t *testing.T) {
	for seed := range uint64(1000 / effort) {
		rng := rand.New(rand.NewPCG(seed, 4))
		disk := vfs.NewCrashableMem()
		before, after := runUntilCrash(t, rng, disk)
		crashed := <-after.image
		s, err := Open(stateDir, Options{FS: crashed, OnFatal: mustNotFail(t), Simulated: true})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := read(t, s); !same(got, before) && !same(got, after.contents) {
			t.Fatalf("seed %d: after the crash\n%+v\nwant\n%+v\nor\n%+v", seed, got, before, after.contents)
		}
		fatal(t, s.Commit(nil, nil, at(1<<40), 0)) // it continues from there
		fatal(t, s.Close())
	}
}

type aftermath struct {
	contents contents
	image    chan vfs.FS
}

// runUntilCrash runs a script until the image of the crash has been taken, at a file operation drawn by lot, and returns
// what had been acknowledged by then and what the write under way would have made of it.
func runUntilCrash(t *testing.T, rng *rand.Rand, disk *vfs.MemFS) (before contents, after aftermath) {
	percent, wait := rng.IntN(101), int64(rng.IntN(120))
	image := make(chan vfs.FS, 1)
	var armed atomic.Bool
	var ops atomic.Int64
	files := errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error {
		if armed.Load() && ops.Add(1) == wait+1 {
			image <- disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
		}
		return nil
	}))
	s, err := Open(stateDir, Options{FS: files, OnFatal: mustNotFail(t), Simulated: rng.IntN(2) == 0})
	fatal(t, err)
	defer func() { fatal(t, s.Close()) }()
	steps := script(rand.New(rand.NewPCG(rng.Uint64(), 0)), 0, 200)
	armed.Store(true)
	var now contents
	for _, step := range steps {
		before = now
		fatal(t, step(s, &now))
		if len(image) > 0 {
			break
		}
	}
	if len(image) == 0 {
		t.Fatal("the script ended before the crash")
	}
	return before, aftermath{now, image}
}

// C04: crashes while the store is made, too, leave one that opens.
func TestC04_CrashDuringOpen(t *testing.T) {
	for seed := range uint64(200 / effort) {
		rng := rand.New(rand.NewPCG(seed, 5))
		disk := vfs.NewCrashableMem()
		wait := int64(rng.IntN(250))
		var image atomic.Pointer[vfs.MemFS]
		var ops atomic.Int64
		files := errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error {
			if ops.Add(1) == wait+1 {
				image.Store(disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}))
			}
			return nil
		}))
		s, err := Open(stateDir, Options{FS: files, OnFatal: mustNotFail(t), Simulated: true})
		fatal(t, err)
		fatal(t, s.Close())
		crashed := image.Load()
		if crashed == nil {
			crashed = disk
		}
		s, err = Open(stateDir, Options{FS: crashed, OnFatal: mustNotFail(t), Simulated: true})
		if err != nil {
			t.Fatalf("seed %d, crash at operation %d: %v", seed, wait, err)
		}
		fatal(t, s.Commit(nil, nil, at(5), 0))
		fatal(t, s.Close())
	}
}

// C03: the log cannot be written or synced: last words, OnFatal once, no further use, and a restart has all that was
// acknowledged.
func TestC03_LogErrorEndsTheStore(t *testing.T) {
	for name, kinds := range map[string][]errorfs.OpKind{
		"write": {errorfs.OpFileWrite},
		"sync":  {errorfs.OpFileSync, errorfs.OpFileSyncData},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			var broken atomic.Bool
			files := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				for _, kind := range kinds {
					if broken.Load() && op.Kind == kind && strings.HasSuffix(op.Path, ".log") {
						return errorfs.ErrInjected
					}
				}
				return nil
			}))
			var failures []error
			s, err := Open(stateDir, Options{FS: files, OnFatal: func(err error) { failures = append(failures, err) }})
			fatal(t, err)
			fatal(t, s.Commit(nil, nil, at(100), 0))
			broken.Store(true)
			if err := s.Commit(nil, nil, at(200), 0); err == nil {
				t.Fatal("a commit that is not on the disk was acknowledged")
			}
			broken.Store(false)
			if err := s.Commit(nil, nil, at(300), 0); err == nil {
				t.Fatal("the store continued after the failure")
			}
			if _, err := s.Journal(); err == nil {
				t.Fatal("the store reads on after the failure")
			}
			s.files.fail(errors.New("a later trouble of the same disk"))
			if len(failures) != 1 || !strings.Contains(failures[0].Error(), stateDir) {
				t.Fatalf("OnFatal was told %v", failures)
			}
			after := disk.CrashClone(vfs.CrashCloneCfg{})
			_ = s.Close() // reports the same trouble; only the goroutines matter
			s = openMem(t, after)
			if p, _ := s.Checkpoint(); p.Offset != 100 {
				t.Fatalf("after the restart the checkpoint is %v", p)
			}
			fatal(t, s.Close())
		})
	}
}

// C03, C05: one write operation after the other fails, from the first one of Open on, until a run sees no failure. Nothing
// that was acknowledged may be missing afterwards.
func TestC03_EveryWriteOperationFailsOnce(t *testing.T) {
	for k := int32(0); ; k++ {
		disk := vfs.NewCrashableMem()
		index := errorfs.OnIndex(k)
		failing := errorfs.ErrInjected.If(errorfs.And(errorfs.Writes, index))
		acked, failures := runWithFailure(t, errorfs.Wrap(disk, failing))
		s := openMem(t, disk.CrashClone(vfs.CrashCloneCfg{}))
		got := read(t, s)
		fatal(t, s.Close())
		ok := false
		for _, c := range acked {
			ok = ok || same(got, c)
		}
		if !ok {
			t.Fatalf("operation %d failed (%v); after the restart\n%+v\nwant one of\n%+v", k, failures, got, acked)
		}
		if index.Index.Load() >= 0 {
			if len(failures) > 0 {
				t.Fatalf("no operation failed, but: %v", failures)
			}
			t.Logf("%d write operations", k)
			return
		}
	}
}

// runWithFailure returns the contents that may be found afterwards: those acknowledged last, and those of the write that
// was refused, if one was.
func runWithFailure(t *testing.T, files vfs.FS) (acceptable []contents, failures []error) {
	acceptable = []contents{{}}
	s, err := Open(stateDir, Options{FS: files, Simulated: true, OnFatal: func(err error) { failures = append(failures, err) }})
	if err != nil {
		return acceptable, append(failures, err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			failures = append(failures, err)
		}
	}()
	var now contents
	for _, step := range script(rand.New(rand.NewPCG(7, 7)), 0, 30) {
		before := now
		if err := step(s, &now); err != nil {
			return []contents{before, now}, append(failures, err)
		}
		acceptable = []contents{now}
	}
	return acceptable, failures
}

// C05: every byte of every file is damaged, one after the other. Either Open says so, or what is read is what was written; where only
// the end of the last log is damaged, which looks like a crash during a write, it is what an earlier write had left.
func TestC05_EveryByteDamaged(t *testing.T) {
	disk := vfs.NewCrashableMem()
	var states []contents
	var now contents
	for run := range uint64(2) { // the first run's writes end up in a table file, the second's stay in the log
		s := openMem(t, disk)
		now.generation = 0
		for _, step := range script(rand.New(rand.NewPCG(run, 3)), run, 12) {
			states = append(states, now)
			fatal(t, step(s, &now))
		}
		fatal(t, s.Close())
	}
	states = append(states, now)
	names, err := disk.List(stateDir + "/" + engineDir)
	fatal(t, err)
	found, silent, tail := 0, 0, 0
	for _, name := range names {
		path := stateDir + "/" + engineDir + "/" + name
		for i := 0; i < size(t, disk, path); i += effort {
			files := disk.CrashClone(vfs.CrashCloneCfg{})
			flip(t, files, path, i)
			switch old := reopenDamaged(t, files, states); {
			case old < 0:
				found++
			case old == len(states)-1:
				silent++
			case strings.HasSuffix(name, ".log"):
				tail++
			default:
				t.Fatalf("byte %d of %s: read as what it was %d writes ago", i, name, len(states)-1-old)
			}
		}
	}
	t.Logf("%d flips found, %d without effect, %d taken as a torn end of the log", found, silent, tail)
	if found == 0 {
		t.Fatal("no damage was found")
	}
}

// C05: damage that the end of the log cannot explain, because 32 KiB blocks that were synced later follow it, is reported:
// this is what the engine's newest format is for.
func TestC05_DamageInTheMiddleOfTheLog(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s, err := Open(stateDir, Options{FS: disk, OnFatal: mustNotFail(t)})
	fatal(t, err)
	for i := range uint64(3) {
		fatal(t, s.Schemas.Save("shop.t", make([]byte, 40_000)))
		fatal(t, s.Commit(nil, nil, at(i+10), 0))
	}
	fatal(t, s.Close())
	names, err := disk.List(stateDir + "/" + engineDir)
	fatal(t, err)
	for _, name := range names {
		if path := stateDir + "/" + engineDir + "/" + name; strings.HasSuffix(name, ".log") && size(t, disk, path) > 100_000 {
			flip(t, disk, path, 1000)
		}
	}
	_, err = Open(stateDir, Options{FS: disk, Simulated: true})
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Dir != stateDir {
		t.Fatalf("Open: %v", err)
	}
}

// reopenDamaged returns which of the states is read, -1 when the damage is reported, and fails on anything else.
func reopenDamaged(t *testing.T, files vfs.FS, states []contents) int {
	t.Helper()
	s, err := Open(stateDir, Options{FS: files, OnFatal: mustNotFail(t), Simulated: true})
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		return -1
	}
	fatal(t, err)
	defer func() { fatal(t, s.Close()) }()
	got := read(t, s)
	for i := len(states) - 1; i >= 0; i-- {
		if same(got, states[i]) {
			return i
		}
	}
	t.Fatalf("read what was never written:\n%+v", got)
	return -1
}

func size(t *testing.T, files vfs.FS, path string) int {
	info, err := files.Stat(path)
	fatal(t, err)
	return int(info.Size())
}

func flip(t *testing.T, files vfs.FS, path string, i int) {
	t.Helper()
	f, err := files.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	fatal(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, int64(i))
	fatal(t, err)
	b[0] ^= 0x41
	_, err = f.WriteAt(b, int64(i))
	fatal(t, err)
	fatal(t, f.Close())
}
