package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	program := filepath.Join(dir, "canal-outbox")
	if err := relay.BuildCommit("../..", commit, program); err != nil {
		remove()
		return nil, fmt.Errorf("BEFORE=%s: %w", commit, err)
	}
	older = &build{name: "before", program: program, prefix: "before-"}
	return remove, nil
}
