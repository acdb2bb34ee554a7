package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// file is one to write.
type file struct {
	path string
	data []byte
	mode os.FileMode
}

// files are what is written, the configuration last: without it the others have no effect.
func (s *setup) files() (all []file) {
	if s.account.fresh {
		all = append(all, file{s.account.passwordFile, []byte(s.account.password.Get() + "\n"), 0o600})
	}
	if len(s.sql) > 0 {
		all = append(all, file{s.Files.SQL, []byte(s.script()), 0o600})
	}
	return append(all, file{s.Files.Config, []byte(s.content.render()), 0o644})
}

// free refuses files that are there. Without a configuration the SQL of an interrupted run may be replaced.
func (s *setup) free() error {
	if s.Files.Force {
		return nil
	}
	if exists(s.Files.Config) {
		return operator.Refusedf("%s (--out) is there, and nothing was written: --force replaces it, or name another file", s.Files.Config)
	}
	old, err := os.ReadFile(s.Files.SQL)
	if err == nil && !bytes.HasPrefix(old, []byte(firstLine)) {
		return operator.Refusedf("%s (--sql-out) is there, and nothing was written: --force replaces it, or name another file", s.Files.SQL)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (s outcome) write(ctx context.Context) ([]file, error) {
	all := s.files()
	if err := writeAll(ctx, all, s.Files.Force, func(string) {}); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		path, key := s.Files.Config, "--out"
		var at *os.PathError
		if errors.As(err, &at) {
			path = at.Path
		}
		return nil, faults(config.Fault{Path: "file", Value: path, Source: key, Reason: fmt.Sprintf("cannot be written: %v\n  fix: run init as a user who may write there, or name another place with --out and --sql-out", err)})
	}
	return all, nil
}

// writeAll writes all files or none: each first under another name in its directory, synced, then all get their names, the last file last. What
// got its name before an error or an interrupt is taken back. placed is called with each path that has got its content.
func writeAll(ctx context.Context, all []file, replace bool, placed func(path string)) (err error) {
	var undo []func() error
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				err = errors.Join(err, undo[i]())
			}
		}
	}()
	for _, f := range all {
		dir := filepath.Dir(f.path)
		if !exists(dir) {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			undo = append(undo, func() error { return os.Remove(dir) })
		}
		undo = append(undo, func() error { return removed(f.hidden()) })
		if err := f.prepare(); err != nil {
			return err
		}
	}
	for _, f := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		back, err := f.place(replace)
		if err != nil {
			return err
		}
		undo = append(undo, back)
		placed(f.path)
	}
	for _, f := range all {
		if err := syncDir(filepath.Dir(f.path)); err != nil {
			return err
		}
	}
	return nil
}

// hidden is the name of a file before all are ready. It is the same in each run, so that a killed one leaves no second.
func (f file) hidden() string {
	return filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".init")
}

// prepare writes the content under the hidden name.
func (f file) prepare() (err error) {
	if err := removed(f.hidden()); err != nil {
		return err
	}
	out, err := os.OpenFile(f.hidden(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := out.Write(f.data); err != nil {
		return err
	}
	if err := out.Chmod(f.mode); err != nil { // whatever the umask
		return err
	}
	return out.Sync()
}

// place gives the file its name, and returns how to take that back.
func (f file) place(replace bool) (back func() error, err error) {
	old, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		back = func() error { return removed(f.path) }
	case err != nil:
		return nil, err
	case !replace && !bytes.HasPrefix(old, []byte(firstLine)):
		return nil, &os.PathError{Op: "create", Path: f.path, Err: fs.ErrExist}
	default:
		before := file{f.path, old, f.mode}
		back = func() error {
			if err := before.prepare(); err != nil {
				return err
			}
			return os.Rename(before.hidden(), before.path)
		}
	}
	if replace || old != nil {
		return back, os.Rename(f.hidden(), f.path)
	}
	err = os.Link(f.hidden(), f.path) // refuses a file that has appeared meanwhile
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return back, os.Rename(f.hidden(), f.path) // a file system without links
	}
	return back, errors.Join(err, removed(f.hidden()))
}

func removed(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
