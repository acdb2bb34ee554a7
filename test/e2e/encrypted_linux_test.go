package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// A52: the server writes its log encrypted and decrypts it for its readers. Rows come through the log, over a restart of the
// relay, into a new log file and under a new key. No body is readable on the disk.
func TestA52_EncryptedLog(t *testing.T) {
	relay.Long(t)
	t.Parallel()
	t.Run("mysql", func(t *testing.T) {
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.Needs(t, testkit.MySQL, "9.7", "plugins in its archive")})
		withKeyring(t, db)
		encrypted(t, db, "ALTER INSTANCE ROTATE BINLOG MASTER KEY")
	})
	t.Run("mariadb", func(t *testing.T) {
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB, Args: mariaDBKeys(t)})
		encrypted(t, db, "FLUSH BINARY LOGS")
	})
}

// encrypted goes through what a relay does every day on a server whose log is encrypted.
func encrypted(t *testing.T, db *testkit.Database, renew string) {
	t.Helper()
	l := newLab(t, db)
	l.start()
	l.settled("settled")
	want := append(keys("one", 50), keys("many", 300)...)
	l.commit(want[:50]...)
	l.exec(insert(want[50:]...))
	testkit.Exec(t, db.Root(), "FLUSH BINARY LOGS")
	l.commit("in the next file")
	testkit.Exec(t, db.Root(), renew)
	l.commit("under the next key")
	l.findsBoundaries()
	l.sent()
	l.stop()
	l.commit("while down")
	l.start()
	l.settled("after")
	l.account(append(want, "settled", "in the next file", "under the next key", "while down", "after")...)
	if n := l.fromSweep(); n != 0 {
		t.Errorf("%d rows came from the sweep", n)
	}
	l.wantGaps()
	files, err := filepath.Glob(filepath.Join(db.Dir(), "data", "binlog.0*"))
	testkit.Must(t, err)
	size := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		testkit.Must(t, err)
		size += len(content)
		if bytes.Contains(content, []byte("body of ")) {
			t.Errorf("%s holds bodies in clear", filepath.Base(file))
		}
	}
	if size < 350*len("body of many") {
		t.Errorf("%d bytes in %q: this is not the log", size, files)
	}
}

// findsBoundaries looks at the end of the log, which is a transaction boundary, and at the byte before it, which is none.
func (l *lab) findsBoundaries() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	end := l.position()
	end.GTIDs = ""
	inside := outbox.Position{File: end.File, Offset: end.Offset - 1}
	for _, at := range []outbox.Position{end, inside} {
		before, after, err := canal.Boundaries(ctx, server.Config{Address: l.source, User: l.user}, at)
		testkit.Must(l.t, err)
		if (before == at) != (at == end) || after.Compare(end) < 0 {
			l.t.Errorf("%s lies between %s and %s; the log ends at %s", at, before, after, end)
		}
	}
}

// withKeyring restarts the server of a database with a keyring. MySQL takes a keyring only from a manifest next to its program,
// so the server runs under another name in the directory of the database, next to a plugin directory with the keyring's own
// configuration.
func withKeyring(t *testing.T, db *testkit.Database) {
	t.Helper()
	var plugins, base string
	testkit.Must(t, db.Root().QueryRow("SELECT @@plugin_dir, @@basedir").Scan(&plugins, &base))
	process := fmt.Sprintf("/proc/%d/", db.PID())
	line, err := os.ReadFile(process + "cmdline")
	testkit.Must(t, err)
	root, err := os.Readlink(process + "root")
	testkit.Must(t, err)
	program, err := os.Readlink(process + "exe")
	testkit.Must(t, err)
	testkit.Must(t, db.Stop())

	outside := filepath.Join(db.Dir(), "encrypted")
	inside := "/" + strings.TrimPrefix(strings.TrimPrefix(outside, root), "/")
	testkit.Must(t, os.MkdirAll(outside, 0o755))
	const component = "component_keyring_file"
	copyFile(t, program, filepath.Join(outside, "mysqld"))
	copyFile(t, filepath.Join(root, plugins, component+".so"), filepath.Join(outside, component+".so"))
	for name, content := range map[string]string{
		"mysqld.my":        `{"components": "file://` + component + `"}`,
		component + ".cnf": fmt.Sprintf(`{"path": %q, "read_only": false}`, inside+"/keyring"),
	} {
		testkit.Must(t, os.WriteFile(filepath.Join(outside, name), []byte(content), 0o600))
	}
	args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")[1:]
	args = append(args, "--basedir="+base, "--plugin-dir="+inside, "--binlog-encryption=ON")
	cmd := exec.Command(inside+"/mysqld", args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if root != "/" {
		cmd.SysProcAttr.Chroot = root
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the server's words:\n%s", output.String())
		}
	})
	testkit.WaitFor(t, 2*time.Minute, "the server with the keyring", func() bool {
		return db.Root().PingContext(context.Background()) == nil
	})
	testkit.Exec(t, db.Root(), "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY") // those from before, in clear
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(to, content, 0o755))
}

// mariaDBKeys are the options for a log that is encrypted with keys in a file. The plugin that reads the file comes with the
// distribution's package of the whole server and not with that of its core, which is what these tests install; so it is
// taken out of the former.
func mariaDBKeys(t *testing.T) []string {
	t.Helper()
	if os.Getenv("TEST_MARIADB") != "" {
		t.Skip("the distribution's plugin does not fit another release of the server")
	}
	const plugin = "file_key_management"
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", "apt-get download mariadb-server && dpkg -x mariadb-server_*.deb .")
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the distribution does not hand out the package with the plugin %s (apt-get update may be due): %v\n%s", plugin, err, output)
	}
	found, err := filepath.Glob(filepath.Join(dir, "usr/lib*/*/plugin", plugin+".so"))
	testkit.Must(t, err)
	if len(found) == 0 {
		t.Fatalf("the package has no plugin %s", plugin)
	}
	file := filepath.Join(dir, "keys")
	testkit.Must(t, os.WriteFile(file, []byte("1;"+strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600))
	return []string{
		"--plugin-dir=" + filepath.Dir(found[0]), "--plugin-load-add=" + plugin, "--loose-file-key-management-filename=" + file, "--encrypt-binlog=ON",
	}
}
