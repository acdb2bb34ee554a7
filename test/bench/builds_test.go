package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// build is a canal-outbox that benchmarks measure: of this source, or of an older commit.
type build struct {
	name    string
	program string // "" is this source's, built on first use
	prefix  string // of its figures
}

// older is the build of the commit that BENCH_BEFORE names, if it names one.
var older *build

// builds are the builds that each benchmark of a relay's process measures, in order: with an older one both run alternately, in
// both orders, so that other load affects both.
func builds() []build {
	now := build{name: "now"}
	if older == nil {
		return []build{now}
	}
	return []build{now, *older, *older, now}
}

// once are the builds without the reverse order: for benchmarks that alternate themselves.
func once() []build { return builds()[:min(2, len(builds()))] }

// measured stores a figure of the build for the table.
func (u build) measured(what string, value float64) { measured(u.prefix+what, value) }

// each measures the builds one after the other on the same servers, each time with a new state.
func (f *fixture) each(b *testing.B, list []build, measure func(*testing.B, build)) {
	b.Helper()
	for _, u := range list {
		b.Run(u.name, func(b *testing.B) {
			u.take(b, f)
			defer f.Kill() // after a failed measurement; else it has ended
			measure(b, u)
		})
	}
}

// take makes the fixture's relay run this build, or skips what an older one does not support.
func (u build) take(b *testing.B, f *fixture) {
	b.Helper()
	f.Program = u.program
	testkit.Must(b, os.RemoveAll(f.StateDir()))
	if u.program == "" {
		relay.Binary(b, "") // built before the time counts
		return
	}
	if out, err := exec.Command(u.program, "config", "validate", "--config", f.Config()).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: the older build does not take the configuration: %v\n%s", b.Name(), err, out)
		b.SkipNow()
	}
}

// pause pauses the relay's intake, so that a backlog grows in the log. An older build without it is skipped.
func (f *fixture) pause(b testing.TB) {
	b.Helper()
	_, err := f.Client().Pause(b.Context(), outbox.Pause{Reason: "a backlog is made"})
	if err != nil && f.Program != "" {
		fmt.Fprintf(os.Stderr, "%s: the older build cannot pause: %v\n", b.Name(), err)
		b.SkipNow()
	}
	testkit.Must(b, err)
}

// buildOlder builds the program of a commit into a directory that remove deletes. Without a commit there is no older build.
func buildOlder(commit string) (remove func(), err error) {
	if commit == "" {
		return func() {}, nil
	}
	dir, err := os.MkdirTemp("", "canal-outbox-older-")
	if err != nil {
		return nil, err
	}
	remove = func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	source, program := filepath.Join(dir, "source"), filepath.Join(dir, "canal-outbox")
	err = export("../..", commit, source)
	if err == nil {
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./cmd/canal-outbox")
		cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
		err = output(cmd)
	}
	if err != nil {
		remove()
		return nil, fmt.Errorf("BEFORE=%s: %w", commit, err)
	}
	older = &build{name: "before", program: program, prefix: "before-"}
	return remove, os.RemoveAll(source)
}

// export writes the files of a commit into a new directory. The repository stays as it is.
func export(repository, commit, into string) error {
	if _, err := exec.LookPath("git"); err != nil {
		return fmt.Errorf("%w: install git, or measure without an older build", err)
	}
	git := func(args ...string) error {
		return output(exec.Command("git", append([]string{"-C", repository}, args...)...))
	}
	if err := git("rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{commit}"); err != nil {
		return errors.New("git knows no such commit here: name one that `git log` shows, or fetch it first")
	}
	if err := os.MkdirAll(into, 0o700); err != nil {
		return err
	}
	archive, err := filepath.Abs(into + ".tar")
	if err != nil {
		return err
	}
	err = git("archive", "--format=tar", "--output="+archive, commit)
	if err == nil {
		err = output(exec.Command("tar", "-xf", archive, "-C", into))
	}
	return errors.Join(err, os.RemoveAll(archive))
}

// output runs a command and adds its output to its error.
func output(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// The files of a commit are exported without a change in the repository, and errors are reported.
func TestAnOlderBuildsSource(t *testing.T) {
	repository, into := t.TempDir(), filepath.Join(t.TempDir(), "source")
	for _, args := range [][]string{
		{"init", "--quiet"},
		{"-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false", "commit", "--quiet", "--allow-empty", "-m", "empty"},
	} {
		testkit.Must(t, output(exec.Command("git", append([]string{"-C", repository}, args...)...)))
	}
	if err := export(repository, "0123456789ab", into); err == nil || !strings.Contains(err.Error(), "no such commit") {
		t.Errorf("an unknown commit: %v", err)
	}
	testkit.Must(t, export(repository, "HEAD", into))
	left, err := os.ReadDir(filepath.Dir(into))
	testkit.Must(t, err)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	t.Setenv("PATH", "")
	if err := export(repository, "HEAD", into); err == nil || !strings.Contains(err.Error(), "install git") {
		t.Errorf("without git: %v", err)
	}
}
