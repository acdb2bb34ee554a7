package testkit

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Flavor is the kind of a database server.
type Flavor string

// The flavors that StartDatabase starts.
const (
	// MySQL is 8.0.31, or the release that TEST_MYSQL names; MariaDB is the distribution's, or the release that TEST_MARIADB names.
	MySQL   Flavor = "mysql"
	MariaDB Flavor = "mariadb"
	// The releases of MySQL by name, whatever TEST_MYSQL says, for tests of what only one of them has. MySQLOwn is the server of this
	// machine, of release 8 or later. Database.Flavor is MySQL then.
	MySQL57  Flavor = "mysql-5.7"
	MySQL80  Flavor = "mysql-8.0"
	MySQL97  Flavor = "mysql-9.7"
	MySQLOwn Flavor = "mysql-own"
	// MariaDB118 starts a MariaDB whose row events have no offsets (11.4 and newer, failure A39), whatever release the
	// distribution has. Database.Flavor is MariaDB then.
	MariaDB118 Flavor = "mariadb-11.8"
)

// Flavors returns both flavors, for tests that run once on each.
func Flavors() []Flavor { return []Flavor{MySQL, MariaDB} }

// DatabaseOptions says how to start a database. The zero value of each field but Flavor is the usual choice for tests.
type DatabaseOptions struct {
	// Flavor is required.
	Flavor Flavor
	// Args are server options such as --binlog-row-image=MINIMAL. They come last and so override the defaults: row-based
	// binary log with full row metadata (MySQL 5.7 has none), GTIDs (always there on MariaDB), relaxed flushing, utf8mb4, a
	// server id equal to the port.
	Args []string
	// Durable flushes the redo log and the binary log at each commit, as a production server does.
	Durable bool
	// Clock gives the server a clock of its own, which Database.SetClock sets (Linux).
	Clock bool
	// TLS lets the server offer TLS with this certificate. Without it MySQL and MariaDB from 11.4 on offer one they
	// made themselves, older MariaDB none.
	TLS *Certificates
}

// Database is a private MySQL or MariaDB server. The account root has all rights and no password. Kill, Stop, Start,
// Pause and Resume keep data and port.
type Database struct {
	*Server
	Flavor Flavor // MySQL or MariaDB
	// MoreArgs are server options that the next Start adds.
	MoreArgs []string

	dir       *runDir
	ports     *ports
	root      *sql.DB
	installed installation
}

// NewDatabase is StartDatabase for a test: it fails the test on error and closes the server at its end.
func NewDatabase(t T, opts DatabaseOptions) *Database {
	t.Helper()
	d, err := StartDatabase(context.Background(), opts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		showCrash(t, d)
		if err := d.Close(); err != nil {
			t.Logf("close %s: %v", d.Flavor, err)
		}
	})
	return d
}

// StartDatabase starts a new, empty server and returns when it answers. The server is installed first if it is missing,
// which may take minutes. The caller closes it.
func StartDatabase(ctx context.Context, opts DatabaseOptions) (_ *Database, err error) {
	installed, err := findInstallation(ctx, opts.Flavor)
	if err != nil {
		return nil, err
	}
	template, err := installed.template(ctx)
	if err != nil {
		return nil, err
	}
	d := &Database{Flavor: installed.flavor, installed: installed}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if d.dir, err = newRunDir(installed.runs, string(opts.Flavor)); err != nil {
		return nil, err
	}
	if d.ports, err = reservePorts(0); err != nil {
		return nil, err
	}
	if err := copyTree(ctx, template, d.dataDir()); err != nil {
		return nil, err
	}
	if d.root, err = d.Open("root", "", ""); err != nil {
		return nil, err
	}
	d.root.SetMaxIdleConns(-1) // no connection, and so no goroutine, outlives a statement: leak checks stay exact
	args, err := d.args(opts)
	if err != nil {
		return nil, err
	}
	var env []string
	if opts.Clock {
		if env, err = d.ownClock(ctx); err != nil {
			return nil, err
		}
	}
	d.Server = &Server{
		name: string(opts.Flavor),
		log:  filepath.Join(d.dir.path, "server.log"),
		command: func() *exec.Cmd {
			cmd := installed.command(context.Background(), installed.path, slices.Concat(args, d.MoreArgs)...)
			cmd.Env = append(cmd.Env, env...)
			return cmd
		},
		ready: d.root.PingContext,
	}
	return d, d.Start(ctx)
}

// args is the command line: what both flavors share, what only one has, what the caller adds.
func (d *Database) args(opts DatabaseOptions) ([]string, error) {
	port := strconv.Itoa(d.ports.base)
	args := append(d.installed.baseArgs(d.dataDir()),
		"--socket=server.sock", "--pid-file=server.pid", // relative to the data directory: socket paths have 107 bytes at most
		"--port="+port, "--bind-address=127.0.0.1", "--skip-name-resolve",
		"--server-id="+port, "--log-bin=binlog", "--log-slave-updates",
		"--innodb-doublewrite=0", "--innodb-buffer-pool-size=64M", "--max-connections=300",
		"--character-set-server=utf8mb4", "--secure-file-priv=",
	)
	switch {
	case d.Before(8, 0):
		args = append(args, "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
			"--log-error-verbosity=2", "--max-allowed-packet=64M") // as newer releases do
	case d.Flavor == MySQL:
		args = append(args, "--binlog-row-metadata=FULL", "--mysqlx=OFF", "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
	default:
		args = append(args, "--binlog-row-metadata=FULL", "--binlog-format=ROW")
	}
	if opts.Durable {
		args = append(args, "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1")
	} else {
		args = append(args, "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2")
	}
	if opts.TLS != nil {
		tls, err := opts.TLS.databaseArgs(d.dir.path, d.installed.inside)
		if err != nil {
			return nil, err
		}
		args = append(args, tls...)
	}
	args = append(args, opts.Args...)
	if d.Before(8, 0) { // its log never names the columns
		args = slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--binlog-row-metadata") })
	}
	return args, nil
}

// Addr returns host:port. It stays the same over restarts.
func (d *Database) Addr() string { return loopback(d.ports.base) }

// Port returns the TCP port.
func (d *Database) Port() int { return d.ports.base }

// Dir returns the private directory: data/ and server.log are in it.
func (d *Database) Dir() string { return d.dir.path }

func (d *Database) dataDir() string { return filepath.Join(d.dir.path, "data") }

// Close kills the server and removes its directory. Closing twice is harmless.
func (d *Database) Close() error {
	err := closeServer(d.dir, d.ports, d.Server)
	if d.root != nil {
		err = errors.Join(err, d.root.Close())
	}
	return err
}

// asRoot is the option a database server demands when root starts it.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

func isMariaDB(version string) bool { return strings.Contains(strings.ToLower(version), "mariadb") }
