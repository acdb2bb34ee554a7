package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// C03: the disk of the state directory is full. The process ends rather than go on without a journal; with room again it
// resumes. Nothing is lost, and only rows that the journal could not take may come twice.
func TestC03_DiskFull(t *testing.T) {
	t.Parallel()
	l := newLab(t, testkit.SharedMySQL(t))
	r := l.child()
	testkit.Must(t, os.MkdirAll(r.StateDir(), 0o700))
	if err := syscall.Mount("tmpfs", r.StateDir(), "tmpfs", 0, "size=24m"); err != nil {
		t.Fatalf("mount a small disk (run as root): %v", err)
	}
	t.Cleanup(func() {
		r.Kill()
		testkit.Must(t, syscall.Unmount(r.StateDir(), syscall.MNT_DETACH))
	})
	r.Start(t)
	want := keys("before", 200)
	l.commit(want...)
	l.sent()

	ballast := filepath.Join(r.StateDir(), "ballast")
	fill(t, ballast)
	for i := 0; r.Running() && i < 400; i++ {
		rows := keys(fmt.Sprintf("full%d-", i), 50)
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
		t.Errorf("%d messages of rows that nobody committed", len(records))
	}
	r.Stop(t)
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
