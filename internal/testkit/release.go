package testkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
)

// The environment variables that make a flavor stand for one of its releases in all tests: TEST_MYSQL is 5.7, 8.0, 9.7 or own (see
// MySQLOwn), TEST_MARIADB is 11.8.
const (
	mySQLRelease   = "TEST_MYSQL"
	mariaDBRelease = "TEST_MARIADB"
)

// chosen returns the flavor with a release that MySQL or MariaDB means; other flavors, and the distribution's MariaDB, as they are.
func chosen(flavor Flavor) Flavor {
	switch named := map[Flavor]string{MySQL: os.Getenv(mySQLRelease), MariaDB: os.Getenv(mariaDBRelease)}[flavor]; {
	case named != "":
		return flavor + Flavor("-"+named)
	case flavor != MySQL:
		return flavor
	case runtime.GOOS == "linux" && runtime.GOARCH == "amd64":
		return MySQL80
	}
	return MySQL97 // 8.0 is an archive for that platform
}

// release is a version up to its second number.
type release struct{ major, minor int }

var releasePattern = regexp.MustCompile(`(\d+)\.(\d+)`)

// parseRelease finds the first two numbers of a text.
func parseRelease(text string) (r release, ok bool) {
	match := releasePattern.FindStringSubmatch(text)
	if match == nil {
		return release{}, false
	}
	var errs [2]error
	r.major, errs[0] = strconv.Atoi(match[1])
	r.minor, errs[1] = strconv.Atoi(match[2])
	return r, errs == [2]error{}
}

func (r release) before(other release) bool {
	return r.major < other.major || r.major == other.major && r.minor < other.minor
}

// mustRelease is for what a test writes.
func mustRelease(t T, text string) release {
	t.Helper()
	r, ok := parseRelease(text)
	if !ok {
		t.Fatalf("%q is no release", text)
	}
	return r
}

// Needs returns the flavor for a test that an older MySQL than this release ("8.3") cannot run: MySQL where the tests run on such a release;
// MySQL97 where nothing names the release. It skips the test where TEST_MYSQL names an older one. what completes "it has no ...". Other
// flavors are returned as they are.
func Needs(t T, flavor Flavor, since, what string) Flavor {
	t.Helper()
	if flavor != MySQL {
		return flavor
	}
	run, err := findInstallation(context.Background(), flavor)
	if err != nil {
		t.Fatalf("%v", err)
	}
	switch {
	case !run.release.before(mustRelease(t, since)):
		return MySQL
	case os.Getenv(mySQLRelease) == "":
		return MySQL97
	}
	t.Skipf("MySQL %d.%d: it has no %s", run.release.major, run.release.minor, what)
	return MySQL
}

// Before reports whether the server is a MySQL older than this release.
func (d *Database) Before(major, minor int) bool {
	return d.Flavor == MySQL && d.installed.release.before(release{major, minor})
}

// OnThisMachine reports whether the machine has a server of this flavor, for MySQL of release 8 or later. A server that was unpacked into
// the cache does not count.
func OnThisMachine(ctx context.Context, flavor Flavor) bool {
	if flavor == MariaDB {
		_, err := lookPath("mariadbd")
		return err == nil
	}
	path, err := lookPath("mysqld")
	return err == nil && ownRelease(ctx, path).major >= 8
}

// lookPath also looks where distributions put servers, which is not on every user's PATH.
func lookPath(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

// ownRelease returns the release of that program; zero when it is not MySQL (MariaDB installs a mysqld too).
func ownRelease(ctx context.Context, path string) release {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	r, ok := parseRelease(string(out))
	if err != nil || !ok || isMariaDB(string(out)) {
		return release{}
	}
	return r
}

// unpackedMySQL is the installation of an archive: it has its own libraries and messages.
func unpackedMySQL(dir string, r release) installation {
	libraries := filepath.Join(dir, "lib", "private")
	return installation{
		flavor: MySQL, release: r, path: filepath.Join(dir, "bin", "mysqld"), runs: filepath.Join(filepath.Dir(dir), "run"),
		args: []string{"--basedir=" + dir, "--lc-messages-dir=" + filepath.Join(dir, "share"), "--character-sets-dir=" + filepath.Join(dir, "share", "charsets")},
		env:  []string{"LD_LIBRARY_PATH=" + libraries},
	}
}

// findMySQL returns the installation of a flavor that names its release, which has been installed.
func findMySQL(ctx context.Context, flavor Flavor, cache string) (installation, error) {
	switch flavor {
	case MySQL57:
		return unpackedMySQL(filepath.Join(cache, string(flavor)), release{5, 7}), nil
	case MySQL80:
		return unpackedMySQL(filepath.Join(cache, string(flavor)), release{8, 0}), nil
	case MySQL97:
		root := filepath.Join(cache, "mysql-root")
		return installation{flavor: MySQL, release: release{9, 7}, path: "/usr/sbin/mysqld", chroot: root, runs: filepath.Join(root, "data")}, nil
	}
	path, err := lookPath("mysqld")
	if err != nil {
		return installation{}, fmt.Errorf("start the machine's own MySQL: %w", err)
	}
	return installation{flavor: MySQL, release: ownRelease(ctx, path), path: path, runs: filepath.Join(cache, "run")}, nil
}
