package testkit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Contract compares what a part of the relay offers with what docs/contract/NAME.txt promises to users, a line each, in any order. A promised line
// that is missing, and a line that is not promised yet, are errors of the test. With CONTRACT=add in the environment the file gets the lines that it
// lacks. No command takes a line out: that is a change for users, see docs/compatibility.md.
func Contract(t testing.TB, name string, lines []string) {
	t.Helper()
	file := filepath.Join(moduleRoot(t), "docs", "contract", name+".txt")
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	promised := strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
	for _, line := range promised {
		if !slices.Contains(lines, line) {
			t.Errorf("promised in docs/contract/%s.txt, and gone: %s\n(docs/compatibility.md says what a change needs; then delete the line)", name, line)
		}
	}
	var added []string
	for _, line := range lines {
		if !slices.Contains(promised, line) && !slices.Contains(added, line) {
			added = append(added, line)
		}
	}
	switch {
	case len(added) == 0:
	case os.Getenv("CONTRACT") == "add":
		all := append(promised, added...)
		slices.Sort(all)
		Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		Must(t, os.WriteFile(file, []byte(strings.Join(all, "\n")+"\n"), 0o644))
	default:
		t.Errorf("not promised in docs/contract/%s.txt:\n%s\n(CONTRACT=add go test adds them; from the next release on they stay)", name, strings.Join(added, "\n"))
	}
}

// moduleRoot is the directory of go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	Must(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}
