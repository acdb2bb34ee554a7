package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// C03: a full file system is seen before anything is written to it.
func TestC03_OpenLooksAtTheRoomFirst(t *testing.T) {
	files := vfs.NewMem()
	files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: MinFree - 1})
	_, err := Open(stateDir, Options{FS: files, OnFatal: mustNotFail(t), Simulated: true})
	var full *SpaceError
	if !errors.As(err, &full) || full.Dir != stateDir || !strings.Contains(err.Error(), "12.0 MiB are free") || !strings.Contains(err.Error(), "make room") {
		t.Fatalf("got %v", err)
	}
	if _, err := files.Stat(stateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
	files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: MinFree})
	s, err := Open(stateDir, Options{FS: files, OnFatal: mustNotFail(t), Simulated: true})
	fatal(t, err)
	fatal(t, s.Close())
}

// The room of a directory that does not exist is that of the one in which it would be made.
func TestFreeLooksAbove(t *testing.T) {
	dir := t.TempDir()
	want, err := Free(dir)
	fatal(t, err)
	got, err := Free(filepath.Join(dir, "a", "b"))
	if err != nil || got == 0 || got > want+want/10 || got < want-want/10 {
		t.Errorf("%d bytes, %v; above it %d", got, err, want)
	}
}

// A peek shows what the store holds and leaves every file as it is, though there is no room to open it.
func TestPeekChangesNothing(t *testing.T) {
	dir := t.TempDir()
	if c, err := Peek(t.Context(), dir, Options{}); err != nil || c != (Contents{}) || len(tree(t, dir)) != 0 {
		t.Fatalf("an empty directory: %+v, %v", c, err)
	}
	s, err := Open(dir, Options{OnFatal: mustNotFail(t)})
	fatal(t, err)
	id, at := server.ID{Flavor: outbox.MariaDB, ServerID: 7}, outbox.Position{File: "binlog.000003", Offset: 99}
	fatal(t, s.SetSource(id))
	fatal(t, s.Commit(nil, nil, &at, 0))
	if _, err := Peek(t.Context(), dir, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("a store in use: %v", err)
	}
	fatal(t, s.Close())
	before := tree(t, dir)
	c, err := Peek(t.Context(), dir, Options{})
	if err != nil || c.Source != id || c.Checkpoint != at || c.At.IsZero() || c.Origin.CreatedAt.IsZero() {
		t.Errorf("%+v, %v", c, err)
	}
	if after := tree(t, dir); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

// tree lists the files below a directory with size and time of the last change, but the lock, which is taken for a short time.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	fatal(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir || entry.Name() == "LOCK" {
			return err
		}
		info, err := os.Stat(path)
		if err == nil {
			fmt.Fprintln(&list, path, info.Size(), info.ModTime())
		}
		return err
	}))
	return list.String()
}

// hanging is a file system on which nothing can be listed until it is released.
type hanging struct {
	vfs.FS
	released chan struct{}
}

func (h hanging) List(dir string) ([]string, error) {
	<-h.released
	return h.FS.List(dir)
}

// An opening that hangs ends with its context, or says after a while that the disk is to be looked at. The store that is
// open at last is closed: the directory is free again.
func TestOpenContextGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := errors.New("told to stop")
		for _, stop := range []error{told, nil} {
			files := hanging{vfs.NewMem(), make(chan struct{})}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() {
				if stop != nil {
					cancel(stop)
				}
			})
			started := time.Now()
			_, err := OpenContext(ctx, stateDir, Options{FS: files, OnFatal: mustNotFail(t), Simulated: true})
			switch took := time.Since(started); {
			case stop != nil && (!errors.Is(err, told) || took != time.Second+openGrace):
				t.Errorf("after %v: %v", took, err)
			case stop == nil && (err == nil || !strings.Contains(err.Error(), stateDir) || took != openPatience+openGrace):
				t.Errorf("after %v: %v", took, err)
			}
			cancel(nil)
			close(files.released)
			synctest.Wait()
			s, err := OpenContext(t.Context(), stateDir, Options{FS: files, OnFatal: mustNotFail(t), Simulated: true})
			fatal(t, err)
			fatal(t, s.Close())
		}
	})
}

// An opening that ends soon after it was told to is waited for, so that the directory is free then.
func TestOpenContextIsDoneWhenItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := errors.New("told to stop")
		files := hanging{vfs.NewMem(), make(chan struct{})}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(told)
		time.AfterFunc(openGrace/2, func() { close(files.released) })
		started := time.Now()
		_, err := OpenContext(ctx, stateDir, Options{FS: files, OnFatal: mustNotFail(t), Simulated: true})
		if took := time.Since(started); !errors.Is(err, told) || took != openGrace/2 {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
