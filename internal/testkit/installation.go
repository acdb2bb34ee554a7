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

// mariaDBRelease is the environment variable that makes MariaDB stand for that release in all tests: 11.8, see MariaDB118.
const mariaDBRelease = "TEST_MARIADB"

// installation is an installed database server: the program, the directory below which its data lives, and, for one that was
// unpacked with its own libraries, the root file system to run it in.
type installation struct {
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

// findInstallation installs a server if it is missing. The flavor of what it returns is MySQL or MariaDB.
func findInstallation(ctx context.Context, flavor Flavor) (installation, error) {
	if release := os.Getenv(mariaDBRelease); flavor == MariaDB && release != "" {
		flavor += Flavor("-" + release)
	}
	if flavor != MySQL && flavor != MariaDB && flavor != MariaDB118 {
		return installation{}, fmt.Errorf("start a database: unknown flavor %q", flavor)
	}
	cache, err := servers.Cache()
	if err != nil {
		return installation{}, err
	}
	if err := install(ctx, string(flavor)); err != nil {
		return installation{}, err
	}
	i := installation{flavor: flavor, runs: filepath.Join(cache, "run")}
	switch flavor {
	case MariaDB:
		i.path, err = lookPath("mariadbd")
		return i, err
	case MariaDB118:
		i.flavor, i.path, i.chroot = MariaDB, "/usr/sbin/mariadbd", filepath.Join(cache, string(flavor))
	default:
		if OnThisMachine(ctx, MySQL) {
			i.path, err = lookPath("mysqld")
			return i, err
		}
		i.path, i.chroot = "/usr/sbin/mysqld", filepath.Join(cache, "mysql-root")
	}
	i.runs = filepath.Join(i.chroot, "data")
	return i, nil
}

// OnThisMachine reports whether the machine has a server of this flavor, for MySQL of release 8 or later. A server that was unpacked into
// the cache does not count.
func OnThisMachine(ctx context.Context, flavor Flavor) bool {
	if flavor == MariaDB {
		_, err := lookPath("mariadbd")
		return err == nil
	}
	path, err := lookPath("mysqld")
	return err == nil && mysqlRelease(ctx, path) >= 8
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
func (i installation) inside(path string) string { return strings.TrimPrefix(path, i.chroot) }

func (i installation) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	if i.chroot != "" {
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.chroot}
	}
	return cmd
}

// baseArgs keeps a server's temporary files next to its data: at its start MariaDB removes files that look like leftovers of its
// own from the directory for temporary files, and so another server's tables that are in use.
func (i installation) baseArgs(dataDir string) []string {
	return append([]string{"--no-defaults", "--datadir=" + i.inside(dataDir), "--tmpdir=" + i.inside(filepath.Dir(dataDir))}, asRoot()...)
}

// template returns an initialised data directory of this installation.
func (i installation) template(ctx context.Context) (string, error) {
	file, err := os.Stat(filepath.Join(i.chroot, i.path))
	if err != nil {
		return "", fmt.Errorf("find %s: %w", i.flavor, err)
	}
	// A new version of the program differs in size or time, and gets a new template.
	name := fmt.Sprintf("template-%s-%x-%x", i.flavor, file.Size(), file.ModTime().Unix())
	return template(i.runs, name, func(dir string) error {
		if err := i.initialise(ctx, dir); err != nil {
			return fmt.Errorf("initialise a %s data directory: %w", i.flavor, err)
		}
		return nil
	})
}

// initialise makes dir/data, with an account root that needs no password over TCP and, since names are not resolved, is
// known by address.
func (i installation) initialise(ctx context.Context, dir string) error {
	data := filepath.Join(dir, "data")
	args := i.baseArgs(data)
	program := i.path
	switch i.flavor {
	case MySQL:
		script := filepath.Join(dir, "init.sql")
		if err := os.WriteFile(script, []byte("RENAME USER root@localhost TO root@'127.0.0.1';\n"), 0o644); err != nil {
			return err
		}
		args = append(args, "--initialize-insecure", "--skip-log-bin", "--innodb-doublewrite=0",
			"--innodb-redo-log-capacity=8M", "--init-file="+i.inside(script))
	case MariaDB:
		var err error
		if program = "/usr/bin/mariadb-install-db"; i.chroot == "" {
			if program, err = lookPath("mariadb-install-db"); err != nil {
				return err
			}
		}
		args = append(args, "--auth-root-authentication-method=normal", "--force", "--skip-test-db", "--innodb-log-file-size=16M")
	}
	if out, err := i.command(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w:\n%s", err, out)
	}
	// A copy must make its own server_uuid, else two copies take each other for the same server.
	if err := os.Remove(filepath.Join(data, "auto.cnf")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
