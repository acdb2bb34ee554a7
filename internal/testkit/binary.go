package testkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/canal-outbox/canal-outbox/test/servers"
)

// binary is an installed database server: the program, the directory below which its data lives, and, for a MySQL that
// was unpacked with its own libraries, the root file system to run it in.
type binary struct {
	flavor Flavor
	path   string // as seen inside chroot
	chroot string // "" for a program of this machine
	runs   string // parent of the data directories, as seen from outside
}

// onceInstalled remembers which servers this process has installed or found.
var onceInstalled sync.Map

func install(ctx context.Context, name string) error {
	if _, done := onceInstalled.Load(name); done {
		return nil
	}
	if err := servers.Install(ctx, name); err != nil {
		return err
	}
	onceInstalled.Store(name, true)
	return nil
}

func findBinary(ctx context.Context, flavor Flavor) (binary, error) {
	if flavor != MySQL && flavor != MariaDB {
		return binary{}, fmt.Errorf("start a database: unknown flavor %q", flavor)
	}
	cache, err := servers.Cache()
	if err != nil {
		return binary{}, err
	}
	if err := install(ctx, string(flavor)); err != nil {
		return binary{}, err
	}
	b := binary{flavor: flavor, runs: filepath.Join(cache, "run")}
	if flavor == MariaDB {
		b.path, err = lookPath("mariadbd")
		return b, err
	}
	if b.path, err = lookPath("mysqld"); err == nil && mysqlRelease(ctx, b.path) >= 8 {
		return b, nil
	}
	b.path, b.chroot = "/usr/sbin/mysqld", filepath.Join(cache, "mysql-root")
	b.runs = filepath.Join(b.chroot, "data")
	return b, nil
}

// lookPath also looks where distributions put servers, which is not on every user's PATH.
func lookPath(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

var releasePattern = regexp.MustCompile(`Ver (\d+)`)

// mysqlRelease returns the major version of that program, 0 when it is not MySQL (MariaDB installs a mysqld too).
func mysqlRelease(ctx context.Context, path string) int {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	match := releasePattern.FindSubmatch(out)
	if err != nil || match == nil || isMariaDB(string(out)) {
		return 0
	}
	release, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return 0
	}
	return release
}

// inside turns a path of this machine into the one the server sees.
func (b binary) inside(path string) string { return strings.TrimPrefix(path, b.chroot) }

func (b binary) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	if b.chroot != "" {
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: b.chroot}
	}
	return cmd
}

func (b binary) baseArgs(dataDir string) []string {
	return append([]string{"--no-defaults", "--datadir=" + b.inside(dataDir)}, asRoot()...)
}

// template returns an initialised data directory of this binary, made on first use and then kept in the cache:
// initialising takes seconds, copying does not.
func (b binary) template(ctx context.Context) (string, error) {
	program, err := os.Stat(filepath.Join(b.chroot, b.path))
	if err != nil {
		return "", fmt.Errorf("find %s: %w", b.flavor, err)
	}
	if err := os.MkdirAll(b.runs, 0o755); err != nil {
		return "", err
	}
	// A new version of the program differs in size or time, and gets a new template.
	name := fmt.Sprintf("template-%s-%x-%x", b.flavor, program.Size(), program.ModTime().Unix())
	dir := filepath.Join(b.runs, name)
	guard, err := lockFile(dir+lockName, true)
	if err != nil {
		return "", err
	}
	defer guard.Close()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fresh, err := newRunDir(b.runs, "initialise")
	if err != nil {
		return "", err
	}
	defer fresh.close()
	if err := b.initialise(ctx, fresh.path); err != nil {
		return "", fmt.Errorf("initialise a %s data directory: %w", b.flavor, err)
	}
	return dir, os.Rename(filepath.Join(fresh.path, "data"), dir)
}

// initialise makes dir/data, with an account root that needs no password over TCP and, since names are not resolved, is
// known by address.
func (b binary) initialise(ctx context.Context, dir string) error {
	data := filepath.Join(dir, "data")
	args := b.baseArgs(data)
	program := b.path
	switch b.flavor {
	case MySQL:
		script := filepath.Join(dir, "init.sql")
		if err := os.WriteFile(script, []byte("RENAME USER root@localhost TO root@'127.0.0.1';\n"), 0o644); err != nil {
			return err
		}
		args = append(args, "--initialize-insecure", "--skip-log-bin", "--innodb-doublewrite=0",
			"--innodb-redo-log-capacity=8M", "--init-file="+b.inside(script))
	case MariaDB:
		var err error
		if program, err = lookPath("mariadb-install-db"); err != nil {
			return err
		}
		args = append(args, "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=16M")
	}
	if out, err := b.command(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w:\n%s", err, out)
	}
	// A copy must make its own server_uuid, else two copies take each other for the same server.
	if err := os.Remove(filepath.Join(data, "auto.cnf")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
