package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// ErrLocked says that another process, or another Store of this process, has the directory open (failure C01). Opening
// again does not help until that one ends.
var ErrLocked = errors.New("the state directory is in use by another canal-outbox: " +
	"use the API of the running relay, or stop it first; two relays need two directories")

// ErrNewer says that a later release wrote the directory and this one cannot read it (failure C07). The state is sound: it
// must not be quarantined.
var ErrNewer = errors.New("the state directory was written by a newer release: " +
	"start that release again, or set checkpoint.dir to an empty directory")

// ErrClosed is returned by every method that needs the disk after Close.
var ErrClosed = errors.New("the state store is closed")

// ErrUnknownGap says that the store holds no gap of the given number.
var ErrUnknownGap = errors.New("there is no such gap")

// CorruptError says that the directory holds something that was not written by us in this form (failure C05). The way on is
// Quarantine, then Open, a gap record and a sweep.
type CorruptError struct {
	Dir string
	Err error
}

// Error names the directory, the damage and the way on.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("the state in %s is damaged: %v; move it aside and start again (the sweep finds unsent rows in the table)",
		e.Dir, e.Err)
}

// Unwrap returns the damage as found.
func (e *CorruptError) Unwrap() error { return e.Err }

// errRecord marks a record whose checksum or form is wrong.
var errRecord = errors.New("record does not read back")

// classify says what an error of the engine means: ours stay as they are, the operating system's get the directory, and the
// rest is damage. The engine marks only part of what a damaged file leads to, so damage is what remains, not what is
// marked: a store that is moved aside without need costs a sweep, one that is opened again and again costs the service.
func classify(dir string, err error) error {
	var corrupt *CorruptError
	switch {
	case err == nil, errors.Is(err, ErrLocked), errors.Is(err, ErrNewer), errors.As(err, &corrupt):
		return err
	case pebble.IsCorruptionError(err), !fromSystem(err):
		return &CorruptError{Dir: dir, Err: err}
	}
	return fmt.Errorf("state directory %s: %w (check that it is writable by this user and that the disk is neither full nor failing)", dir, err)
}

// fromSystem reports whether a system call said so: permission, space, I/O. A file that the store names and the directory
// lacks is damage.
func fromSystem(err error) bool {
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	var path *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	var number syscall.Errno
	return errors.As(err, &path) || errors.As(err, &link) || errors.As(err, &call) || errors.As(err, &number)
}
