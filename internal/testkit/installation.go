package testkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/canal-outbox/canal-outbox/test/servers"
)

// installation is an installed database server: the program, the directory below which its data lives, and, for one that was
// unpacked with its own libraries, the root file system to run it in.
type installation struct {
	flavor  Flavor  // MySQL or MariaDB
	release release // of MySQL
	path    string  // as seen inside chroot
	chroot  string  // "" for a program of this machine
	runs    string  // parent of the data directories, as seen from outside
	args    []string
	env     []string
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

// findInstallation installs a server if it is missing.
func findInstallation(ctx context.Context, flavor Flavor) (installation, error) {
	flavor = chosen(flavor)
	cache, err := servers.Cache()
	if err != nil {
		return installation{}, err
	}
	switch flavor {
	case MySQL57, MySQL80, MySQL97, MariaDB, MariaDB118:
		if err := install(ctx, string(flavor)); err != nil {
			return installation{}, err
		}
	case MySQLOwn:
	default:
		return installation{}, fmt.Errorf("start a database: unknown flavor %q", flavor)
	}
	switch flavor {
	case MariaDB:
		path, err := lookPath("mariadbd")
		return installation{flavor: MariaDB, path: path, runs: filepath.Join(cache, "run")}, err
	case MariaDB118:
		root := filepath.Join(cache, string(flavor))
		return installation{flavor: MariaDB, path: "/usr/sbin/mariadbd", chroot: root, runs: filepath.Join(root, "data")}, nil
	}
	return findMySQL(ctx, flavor, cache)
}

// inside returns the path that the server sees for a path of this machine.
func (i installation) inside(path string) string { return strings.TrimPrefix(path, i.chroot) }

func (i installation) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), i.env...)
	if i.chroot != "" {
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.chroot}
	}
	return cmd
}

// baseArgs keeps a server's temporary files next to its data: at its start MariaDB removes files that look like leftovers of its
// own from the directory for temporary files, and so another server's tables that are in use.
func (i installation) baseArgs(dataDir string) []string {
	args := []string{"--no-defaults", "--datadir=" + i.inside(dataDir), "--tmpdir=" + i.inside(filepath.Dir(dataDir))}
	return slices.Concat(args, i.args, asRoot())
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
		args = append(args, "--initialize-insecure", "--skip-log-bin", "--innodb-doublewrite=0", "--init-file="+i.inside(script))
		if i.release.before(release{8, 0}) {
			args = append(args, "--innodb-log-file-size=8M")
		} else {
			args = append(args, "--innodb-redo-log-capacity=8M")
		}
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
