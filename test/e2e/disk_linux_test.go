package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// C03: the disk of the state directory is full. The process ends, because it must not continue without a journal. With free
// space it resumes. Nothing is lost, and only rows that the journal could not take may be sent twice.
func TestC03_DiskFull(t *testing.T) {
	t.Parallel()
	l := newLab(t, testkit.SharedMySQL(t))
	r := l.child()
	smallDisk(t, r)
	r.Start(t)
	want := keys("before", 200)
	l.commit(want...)
	l.sent()

	ballast := filepath.Join(r.StateDir(), "ballast")
	fill(t, ballast)
	for i := 0; r.Running() && i < 400; i++ {
		rows := make([]string, 50)
		for n := range rows {
			rows[n] = unlike(i*50 + n)
		}
		l.exec(insert(rows...))
		want = append(want, rows...)
	}
	l.wait("the process to end", func() bool { return !r.Running() })
	if code := r.Wait(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("last words:\n%s", r.LogTail(4))
	contains(t, r.LogTail(4), "no space left on device")
	testkit.Must(t, os.Remove(ballast))

	l.commit("missed")
	want = append(want, "missed")
	r.Start(t)
	l.sent()
	copies := 0
	records := l.records()
	for _, key := range want {
		n := len(records[key])
		if n == 0 || n > 1 && strings.HasPrefix(key, "before") {
			t.Errorf("%s was published %d times", key, n)
		}
		copies += n - 1
		delete(records, key)
	}
	t.Logf("%d of %d rows were published twice", copies, len(want))
	if len(records) > 0 {
		t.Errorf("%d messages of rows that were never committed", len(records))
	}
	r.Stop(t)
}

// unlike makes keys that have nothing in common: the journal keeps what differs from one row to the next.
func unlike(n int) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(n)))
	return hex.EncodeToString(append(sum[:], sum[:]...))[:120]
}

// smallDisk puts the state directory on a file system of 24 MiB.
func smallDisk(t *testing.T, r *relay.Relay) {
	t.Helper()
	testkit.Must(t, os.MkdirAll(r.StateDir(), 0o700))
	if err := syscall.Mount("tmpfs", r.StateDir(), "tmpfs", 0, "size=24m"); err != nil {
		t.Fatalf("mount a small disk (run as root): %v", err)
	}
	t.Cleanup(func() {
		r.Kill()
		testkit.Must(t, syscall.Unmount(r.StateDir(), syscall.MNT_DETACH))
	})
}

// C03: the disk of the state directory is full before the start. The start ends at once with one error that says how much
// room is needed; doctor says so with and without a running relay, and neither changes a file. With room again the relay works.
func TestC03_DiskFullAtStart(t *testing.T) {
	t.Parallel()
	l := newLab(t, testkit.SharedMySQL(t))
	r := l.child()
	smallDisk(t, r)
	r.Start(t)
	l.commit("before")
	l.sent()
	ballast := filepath.Join(r.StateDir(), "ballast")
	fill(t, ballast)
	full := func(when string) {
		t.Helper()
		before := listing(t, r.StateDir())
		out, _, code := r.Command(t, "doctor")
		if code != 1 {
			t.Errorf("%s: doctor ends with %d", when, code)
		}
		contains(t, out, "FAULT", "disk", "0.0 MiB are free", "a start needs 12 MiB")
		if after := listing(t, r.StateDir()); after != before && !r.Running() {
			t.Errorf("%s: doctor changed files; before\n%safter\n%s", when, before, after)
		}
	}
	full("next to a running relay")
	r.Kill()

	full("without a running relay")
	before, logged := listing(t, r.StateDir()), len(r.Log(t))
	r.Launch(t)
	if code := r.Wait(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	said := r.Log(t)[logged:]
	contains(t, said, "0.0 MiB are free", "needs 12 MiB", "make room")
	if n := strings.Count(said, "\n"); n > 3 {
		t.Errorf("%d lines:\n%s", n, said)
	}
	if after := listing(t, r.StateDir()); after != before {
		t.Errorf("the start changed files; before\n%safter\n%s", before, after)
	}

	l.commit("missed")
	testkit.Must(t, os.Remove(ballast))
	r.Start(t)
	l.commit("after")
	l.sent()
	r.Stop(t)
}

// A disk that hangs while the state is opened: a named pipe in the place of the store's log keeps every reader waiting, as
// such a disk does. SIGTERM ends the start all the same.
func TestC03_DiskHangsAtStart(t *testing.T) {
	t.Parallel()
	l := newLab(t, testkit.SharedMySQL(t))
	r := l.child()
	r.Start(t)
	r.Stop(t)
	logs, err := filepath.Glob(filepath.Join(r.StateDir(), "db", "*.log"))
	testkit.Must(t, err)
	log := logs[len(logs)-1]
	testkit.Must(t, os.Rename(log, log+".aside"))
	testkit.Must(t, syscall.Mkfifo(log, 0o600))
	r.Launch(t)
	pipe := -1
	l.wait("the process to read the log", func() bool {
		pipe, err = syscall.Open(log, syscall.O_WRONLY|syscall.O_NONBLOCK, 0) // refused while no process reads
		return err == nil
	})
	r.Stop(t)
	testkit.Must(t, syscall.Close(pipe))

	testkit.Must(t, os.Remove(log))
	testkit.Must(t, os.Rename(log+".aside", log))
	r.Start(t)
	l.commit("after")
	l.sent()
	r.Stop(t)
}

// listing returns the files of a directory with size and time of the last change, without the lock of the store, which every
// process that reads the directory takes for a short time.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	testkit.Must(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Name() == "LOCK" || entry.Type()&os.ModeSocket != 0 {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			fmt.Fprintln(&list, path, info.Size(), info.ModTime())
		}
		return err
	}))
	return list.String()
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	testkit.Must(t, err)
	defer file.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = file.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
