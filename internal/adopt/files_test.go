package adopt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// threeFiles are those of a run in a directory, which is not there.
func threeFiles(root string) []file {
	dir := filepath.Join(root, "canal-outbox")
	return []file{
		{filepath.Join(dir, "mysql-password"), []byte("secret\n"), 0o600},
		{filepath.Join(dir, "canal-outbox.sql"), []byte(firstLine + "x\n"), 0o600},
		{filepath.Join(dir, "canal-outbox.yaml"), []byte("source: {}\n"), 0o644},
	}
}

// tree lists all files with their content and mode.
func tree(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil || path == root {
			return err
		}
		data := []byte("/")
		if !info.IsDir() {
			if data, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&b, "%s %v %q\n", strings.TrimPrefix(path, root), info.Mode(), data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// All files are written or none, whatever fails and whenever an interrupt comes; what was there before is there again.
func TestAllFilesOrNone(t *testing.T) {
	for _, replace := range []bool{false, true} {
		for stop := range 3 {
			t.Run(fmt.Sprintf("replace %v, stop at %d", replace, stop), func(t *testing.T) {
				root := t.TempDir()
				all := threeFiles(root)
				if replace {
					for _, f := range all {
						f.data = []byte("old " + string(f.data))
						if err := writeAll(t.Context(), []file{f}, false, func(string) {}); err != nil {
							t.Fatal(err)
						}
					}
				}
				before := tree(t, root)
				ctx, cancel := context.WithCancel(t.Context())
				placed := 0
				if stop == 0 {
					cancel()
				}
				err := writeAll(ctx, all, replace, func(string) {
					if placed++; placed == stop {
						cancel()
					}
				})
				if !errors.Is(err, context.Canceled) || placed != stop {
					t.Fatalf("%v after %d files", err, placed)
				}
				if after := tree(t, root); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
				if err := writeAll(t.Context(), all, replace, func(string) {}); err != nil {
					t.Fatal(err)
				}
				want := fmt.Sprintf("/canal-outbox drwxr-xr-x \"/\"\n/canal-outbox/canal-outbox.sql -rw------- %q\n/canal-outbox/canal-outbox.yaml -rw-r--r-- %q\n"+
					"/canal-outbox/mysql-password -rw------- %q\n", all[1].data, all[2].data, all[0].data)
				if got := tree(t, root); got != want {
					t.Errorf("got:\n%s\nwant:\n%s", got, want)
				}
			})
		}
	}
	t.Run("a file that is there", func(t *testing.T) {
		root := t.TempDir()
		all := threeFiles(root)
		if err := writeAll(t.Context(), all[2:], false, func(string) {}); err != nil {
			t.Fatal(err)
		}
		before := tree(t, root)
		if err := writeAll(t.Context(), all, false, func(string) {}); !errors.Is(err, os.ErrExist) {
			t.Errorf("%v", err)
		}
		if after := tree(t, root); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// A kill between two files leaves no configuration, and the next run replaces the rest.
func TestKillBetweenTheFiles(t *testing.T) {
	const variable = "TEST_KILL_BETWEEN_FILES"
	if root := os.Getenv(variable); root != "" { // the process that is killed
		err := writeAll(t.Context(), threeFiles(root), false, func(path string) {
			if strings.HasSuffix(path, os.Getenv(variable+"_AFTER")) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		})
		t.Fatalf("not killed: %v", err)
	}
	for _, after := range []string{"mysql-password", "canal-outbox.sql"} {
		root := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run=^TestKillBetweenTheFiles$")
		child.Env = append(os.Environ(), variable+"="+root, variable+"_AFTER="+after)
		err := child.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the process was not killed: %v", err)
		}
		all := threeFiles(root)
		if exists(all[2].path) || !exists(all[0].path) {
			t.Errorf("killed after %s:\n%s", after, tree(t, root))
		}
		s := &setup{Answers: Answers{Files: Files{Config: all[2].path, SQL: all[1].path}}}
		if err := s.free(); err != nil {
			t.Errorf("the next run: %v", err)
		}
		if err := writeAll(t.Context(), all[1:], false, func(string) {}); err != nil { // it takes the password that is there
			t.Errorf("the next run: %v", err)
		}
		if text := tree(t, root); strings.Contains(text, ".init") {
			t.Errorf("after the next run:\n%s", text)
		}
	}
}
