package relay

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// builds are the binaries of this test process, by build tags.
var builds struct {
	sync.Mutex
	dir  string
	path map[string]string
}

// Main is the body of TestMain in a package that uses relays: it runs the tests, closes the shared servers, removes the
// binaries and exits. Then says after the tests what they have found.
func Main(m *testing.M, then ...func()) { testkit.Main(run{m, then}) }

type run struct {
	m    *testing.M
	then []func()
}

// Run runs the tests and removes the binaries.
func (r run) Run() int {
	code := r.m.Run()
	for _, then := range r.then {
		then()
	}
	builds.Lock()
	defer builds.Unlock()
	if builds.dir != "" {
		if err := os.RemoveAll(builds.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return max(code, 1)
		}
	}
	return code
}

// Long skips the test with -short, as make test runs it: the test costs much CPU or time, and make test-rest runs it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
}

// Binary returns the path of the program with the given build tags. It is the one in the directory TEST_BINARIES when there is
// that variable, so that a run of all tests builds it once; else it is built, once in a test process.
func Binary(t testing.TB, tags string) string {
	t.Helper()
	name := strings.TrimSuffix("canal-outbox-"+tags, "-")
	if dir := os.Getenv("TEST_BINARIES"); dir != "" {
		return filepath.Join(dir, name)
	}
	builds.Lock()
	defer builds.Unlock()
	if path := builds.path[tags]; path != "" {
		return path
	}
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "canal-outbox-test-")
		testkit.Must(t, err)
		builds.dir, builds.path = dir, map[string]string{}
	}
	path := filepath.Join(builds.dir, name)
	cmd := exec.Command("go", "build", "-tags", tags, "-o", path, "github.com/canal-outbox/canal-outbox/cmd/canal-outbox")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is released
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build canal-outbox: %v\n%s", err, out)
	}
	builds.path[tags] = path
	return path
}
