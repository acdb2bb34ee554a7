package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var allMutations = flag.Bool("sim.mutations", false, "try every mutation, not only a sample; SIM_TIME does the same")

// mutation breaks one rule of the real code. A simulation that does not see it would prove nothing about that rule.
type mutation struct {
	rule  string // what is broken
	file  string
	edits []edit
	found string // what the first violations are about: a pattern
	seeds int    // within this number; 0: 300
	team  bool   // of those with several processes
	test  string // where hardly a seed sees it: the test that does, a pattern
	in    string // and the directory of its package
}

type edit struct{ old, new string }

const (
	sampleEvery  = 12 // of the mutations, in a run that does not ask for all
	defaultSeeds = 300
)

var errSurvived = errors.New("no seed failed")

// TestMutations builds the simulation with one rule broken at a time and wants to see it fail.
func TestMutations(t *testing.T) {
	if *replayed != 0 || testing.Short() {
		t.Skip("it builds the tests many times over")
	}
	all := *allMutations || os.Getenv("SIM_TIME") != ""
	for n, m := range slices.Concat(mutations, graceMutations, againMutations, readBackMutations, exactlyMutations, leftMutations, teamMutations) {
		if !all && n%sampleEvery != 0 {
			continue
		}
		t.Run(strings.ReplaceAll(m.rule, " ", "_"), func(t *testing.T) {
			began := time.Now()
			report, err := m.try(t)
			if err != nil {
				t.Fatalf("%s: %v\n%s", m.file, err, report)
			}
			t.Logf("%s, in %v: %s", m.file, time.Since(began).Round(100*time.Millisecond), report)
		})
	}
}

var (
	seedLine  = regexp.MustCompile(`(?m)^\s+sim_test.go:\d+: seed (\d+):\n((?:\s+.+\n)+?)\s*replay`)
	buildLine = regexp.MustCompile(`(?m)^(FAIL|#)\s.*(build failed|\[build|setup failed)`)
)

// try runs the simulation with the mutation until a seed fails.
func (m mutation) try(t *testing.T) (report string, err error) {
	overlay, err := m.overlay(t.TempDir())
	if err != nil {
		return "", err
	}
	if m.test != "" {
		return m.tryTest(overlay)
	}
	n := cmp.Or(m.seeds, defaultSeeds)
	from := uint64(1)
	if m.team {
		from = teams + 1
	}
	out, err := goTest(overlay, "-run=^TestSeeds$", ".", fmt.Sprint("-sim.first=", from), fmt.Sprint("-sim.seeds=", n), "-sim.failures=3")
	found := seedLine.FindAllStringSubmatch(out, -1)
	switch {
	case err == nil:
		return "", fmt.Errorf("%w of %d", errSurvived, n)
	case buildLine.MatchString(out) || len(found) == 0:
		return out, err
	}
	for _, f := range found {
		if line := regexp.MustCompile(`(?m)^.*(?:` + m.found + `).*$`).FindString(f[2]); line != "" {
			return "seed " + f[1] + ": " + strings.TrimSpace(line), nil
		}
	}
	return out, fmt.Errorf("it failed, but not for %q", m.found)
}

// tryTest runs the test that sees the mutation.
func (m mutation) tryTest(overlay string) (report string, err error) {
	out, err := goTest(overlay, "-run="+m.test, filepath.Join("../..", m.in))
	switch {
	case err == nil:
		return "", fmt.Errorf("%s passes", m.test)
	case buildLine.MatchString(out):
		return out, err
	}
	return m.test, nil
}

// goTest runs go test with the mutation, without the race detector.
func goTest(overlay string, args ...string) (out string, err error) {
	cmd := exec.Command("go", append([]string{"test", "-count=1", "-vet=off", "-timeout=20m", "-overlay=" + overlay}, args...)...)
	cmd.Env = append(os.Environ(), "SIM_TIME=")
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// mutated returns the path of the file and its text with the edits.
func (m mutation) mutated() (file string, text []byte, err error) {
	if file, err = filepath.Abs(filepath.Join("../..", m.file)); err != nil {
		return "", nil, err
	}
	if text, err = os.ReadFile(file); err != nil {
		return "", nil, err
	}
	for _, e := range m.edits {
		if n := bytes.Count(text, []byte(e.old)); n != 1 {
			return "", nil, fmt.Errorf("the code has changed: %d places are like\n%s", n, e.old)
		}
		text = bytes.Replace(text, []byte(e.old), []byte(e.new), 1)
	}
	return file, text, nil
}

// overlay writes the mutated file and the list that makes the compiler take it.
func (m mutation) overlay(dir string) (path string, err error) {
	file, text, err := m.mutated()
	if err != nil {
		return "", err
	}
	mutant := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(mutant, text, 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutant}})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}
