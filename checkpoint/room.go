package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// MinFree is what must be free on the file system, in bytes, before a store is opened: opening writes the log of the last
// run (4 MiB at most) into a table and reserves somewhat more for the new log; the rest is for what the first commits need.
// With less the engine would try again and again, for minutes, without an answer.
const MinFree = 12 << 20

// openPatience is how long an opening may take. It reads some megabytes; a disk that has not given them by then hangs.
const openPatience = 30 * time.Second

// openGrace is how long OpenContext still waits for an opening after its context has ended. A normal opening ends within that
// time, and then the directory is free when OpenContext returns.
const openGrace = time.Second

// SpaceError says that the file system has too little room for a store to be opened. Nothing was written.
type SpaceError struct {
	Dir  string
	Free uint64 // in bytes
}

// Error names the directory, both sizes and the way on.
func (e *SpaceError) Error() string {
	return fmt.Sprintf("state directory %s: %.1f MiB are free on its file system, a start needs %d MiB: make room there and start again; nothing was written",
		e.Dir, float64(e.Free)/(1<<20), MinFree>>20)
}

// Free is the room on the file system of a state directory, in bytes, for an ordinary user. When the directory is missing,
// it is that of the nearest one above, in which it would be made.
func Free(dir string) (uint64, error) { return free(vfs.Default, dir) }

func free(files vfs.FS, dir string) (uint64, error) {
	for {
		usage, err := files.GetDiskUsage(dir)
		above := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || above == dir {
			return usage.AvailBytes, err
		}
		dir = above
	}
}

// room refuses a file system that is full. One that cannot tell is taken.
func room(files vfs.FS, dir string) error {
	if n, err := free(files, dir); err == nil && n < MinFree {
		return &SpaceError{Dir: dir, Free: n}
	}
	return nil
}

// OpenContext is Open with a time limit: it returns an error when the context ends, or after half a minute. The engine cannot be
// interrupted. An opening that does not end within a further second continues in the background; the store is closed as soon as
// it is open, and the directory stays locked until then. The process should end after OpenContext gave up.
func OpenContext(ctx context.Context, dir string, opts Options) (*Store, error) {
	type result struct {
		store *Store
		err   error
	}
	opened := make(chan result, 1)
	go func() {
		store, err := Open(dir, opts)
		opened <- result{store, err}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, openPatience, fmt.Errorf(
		"state directory %s: the store is not open after %v: its disk is full, failing or hanging; look at its room and health, and start again", dir, openPatience))
	defer cancel()
	select {
	case r := <-opened:
		return r.store, r.err
	case <-ctx.Done():
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if r := <-opened; r.store != nil {
			_ = r.store.Close() // nothing was written to it, and no caller waits for the error
		}
	}()
	select {
	case <-closed:
	case <-time.After(openGrace):
	}
	return nil, context.Cause(ctx)
}
