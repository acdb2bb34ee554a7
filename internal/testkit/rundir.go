package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// closeServer kills the processes of a server and gives back what it had; each part may be missing after a failed start.
func closeServer(dir *runDir, ports *ports, processes ...*Server) error {
	var errs []error
	for _, s := range processes {
		if s != nil {
			errs = append(errs, s.Kill())
		}
	}
	if dir != nil {
		errs = append(errs, dir.close())
	}
	if ports != nil {
		ports.release()
	}
	return errors.Join(errs...)
}

// template returns parent/name, a data directory to copy. It is made on first use and kept: initialising takes seconds,
// copying does not. fill gets a directory and makes the data directory in it, as data.
func template(parent, name string, fill func(dir string) error) (string, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("directory for test servers: %w", err)
	}
	dir := filepath.Join(parent, name)
	guard, err := lockFile(dir+lockName, true)
	if err != nil {
		return "", err
	}
	defer guard.Close()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fresh, err := newRunDir(parent, "initialise")
	if err != nil {
		return "", err
	}
	if err = fill(fresh.path); err == nil {
		err = os.Rename(filepath.Join(fresh.path, "data"), dir)
	}
	return dir, errors.Join(err, fresh.close())
}

// copyTree copies a directory with all attributes, sharing or skipping blocks where the file system can.
func copyTree(ctx context.Context, from, to string) error {
	out, err := exec.CommandContext(ctx, "cp", "-a", "--reflink=auto", "--sparse=always", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy a fresh data directory: %w: %s", err, out)
	}
	return nil
}
