package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// runDir is the private directory of one server. Its lock is held as long as the owning process lives, so that a later
// start can tell the directories of killed processes from those in use.
type runDir struct {
	path string
	lock *os.File
}

const (
	lockName = ".lock"
	keepName = ".keep"
)

// newRunDir makes a directory below parent, after removing those whose owner is gone.
func newRunDir(parent, name string) (*runDir, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("directory for test servers: %w", err)
	}
	guard, err := lockFile(filepath.Join(parent, lockName), true)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	if err := sweep(parent); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(parent, name+"-")
	if err != nil {
		return nil, fmt.Errorf("directory for test servers: %w", err)
	}
	lock, err := lockFile(filepath.Join(path, lockName), false)
	if err != nil {
		return nil, err
	}
	return &runDir{path: path, lock: lock}, nil
}

// sweep removes the directories below parent whose owner died without doing so. Directories without a lock file are not
// ours, and those marked to be kept stay.
func sweep(parent string) error {
	locks, err := filepath.Glob(filepath.Join(parent, "*", lockName))
	if err != nil {
		return fmt.Errorf("list %s: %w", parent, err)
	}
	for _, name := range locks {
		dir := filepath.Dir(name)
		if _, err := os.Stat(filepath.Join(dir, keepName)); err == nil {
			continue
		}
		lock, err := lockFile(name, false)
		if err != nil {
			continue // in use by a living process
		}
		err = os.RemoveAll(dir)
		lock.Close()
		if err != nil {
			return fmt.Errorf("remove what a killed test left behind: %w", err)
		}
	}
	return nil
}

// lockFile opens (and makes) a file and takes its exclusive lock, waiting for it if wait is set. Closing the file gives
// the lock back.
func lockFile(path string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// close removes the directory, or marks it to be kept when CANAL_OUTBOX_KEEP=1.
func (d *runDir) close() error {
	defer d.lock.Close()
	if os.Getenv("CANAL_OUTBOX_KEEP") == "1" {
		return os.WriteFile(filepath.Join(d.path, keepName), nil, 0o644)
	}
	return os.RemoveAll(d.path)
}
