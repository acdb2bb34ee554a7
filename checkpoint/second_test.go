package checkpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

const secondDir = "CHECKPOINT_TEST_SECOND"

// second is the main function of the second process: it opens the directory and says how that went.
func second() bool {
	dir, ok := os.LookupEnv(secondDir)
	if !ok {
		return false
	}
	s, err := Open(dir, Options{})
	switch {
	case errors.Is(err, ErrLocked):
		os.Stdout.WriteString("locked: " + err.Error())
	case err != nil:
		os.Stdout.WriteString("error: " + err.Error())
	default:
		os.Stdout.WriteString("opened")
		_ = s.Close()
	}
	return true
}

func runSecond(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), secondDir+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// C01: the second one gets an error that says what to do, in the same process under another name of the directory, too.
func TestC01_SecondOpen(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{OnFatal: mustNotFail(t)})
	fatal(t, err)
	if got := runSecond(t, dir); !strings.HasPrefix(got, "locked: "+dir) || !strings.Contains(got, "stop it first") {
		t.Fatalf("the second process says %q", got)
	}
	t.Chdir(dir)
	if _, err := Open(".", Options{}); !errors.Is(err, ErrLocked) {
		t.Fatalf("the second Open returned %v", err)
	}
	if _, err := Quarantine(dir, nil); !errors.Is(err, ErrLocked) {
		t.Fatalf("Quarantine of a store in use returned %v", err)
	}
	if got := runSecond(t, dir); !strings.HasPrefix(got, "locked: ") {
		t.Fatalf("after failed attempts here the second process says %q", got)
	}
	fatal(t, s.Close())
	if got := runSecond(t, dir); got != "opened" {
		t.Fatalf("after Close the second process says %q", got)
	}
}

// C02: the lock is lost when the process closes any descriptor of the lock file, so nothing lists the directory or opens
// that file after Open, and a second process is still refused after every kind of call.
func TestC02_NothingWalksTheOpenDirectory(t *testing.T) {
	dir := t.TempDir()
	var opened atomic.Bool
	files := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if opened.Load() && (op.Kind == errorfs.OpList || filepath.Base(op.Path) == "LOCK") {
			t.Errorf("operation %v on %s", op.Kind, op.Path)
		}
		return nil
	}))
	s, err := Open(dir, Options{FS: files, OnFatal: mustNotFail(t)})
	fatal(t, err)
	opened.Store(true)
	fatal(t, s.Commit([]outbox.Completion{{Identity: outbox.Identity{Table: "shop.t", ID: "1"}}}, nil, at(5), 0))
	_, err = s.AddGap(outbox.Gap{Cause: outbox.GapPurged})
	fatal(t, err)
	fatal(t, s.Reset(server.ID{Flavor: outbox.MySQL}, *at(4), 0, "test"))
	read(t, s)
	fatal(t, s.files.db.Flush())
	if got := runSecond(t, dir); !strings.HasPrefix(got, "locked: ") {
		t.Errorf("the second process says %q", got)
	}
	opened.Store(false)
	fatal(t, s.Close())
}

// C09: a directory that is not there is made, for this user alone, and says that it is new.
func TestC09_DirectoryIsMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lib", "state")
	s, err := Open(dir, Options{OnFatal: mustNotFail(t)})
	fatal(t, err)
	for _, path := range []string{dir, filepath.Join(dir, engineDir)} {
		info, err := os.Stat(path)
		fatal(t, err)
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	if _, ok := s.Checkpoint(); ok {
		t.Error("a new store has a checkpoint")
	}
	created := s.Origin()
	if created.CreatedAt.IsZero() || created.Quarantined != "" {
		t.Errorf("origin %+v", created)
	}
	fatal(t, s.Close())
	s, err = Open(dir, Options{OnFatal: mustNotFail(t)})
	fatal(t, err)
	if got := s.Origin(); !got.CreatedAt.Equal(created.CreatedAt) {
		t.Errorf("origin changed from %+v to %+v", created, got)
	}
	fatal(t, s.Close())
}

// A directory that cannot be written to is the operator's business, not damage.
func TestOpenDistinguishesPermissionFromDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	fatal(t, os.WriteFile(path, nil, 0o600))
	_, err := Open(filepath.Join(path, "state"), Options{})
	var corrupt *CorruptError
	if err == nil || errors.As(err, &corrupt) || errors.Is(err, ErrLocked) {
		t.Fatalf("Open below a file: %v", err)
	}
	if !strings.Contains(err.Error(), "writable") {
		t.Fatalf("the error does not say what to do: %v", err)
	}
}
