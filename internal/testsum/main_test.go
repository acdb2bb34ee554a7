package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// project writes a small module and makes it the working directory.
func project(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.test/m\n\ngo 1.26.0\n"
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-mod=mod")
}

const (
	good  = "package a\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Log(\"quiet\") }\nfunc TestB(t *testing.T) { t.Skip(\"why\") }\n"
	bad   = "package b\nimport \"testing\"\nfunc TestC(t *testing.T) { t.Fatal(\"loud\") }\n"
	wrong = "package c\nimport \"testing\"\nfunc TestD(t *testing.T) { undefined() }\n"
	exits = "package d\nimport (\"os\"; \"testing\")\nfunc TestE(t *testing.T) {}\nfunc TestMain(m *testing.M) { m.Run(); println(\"leak\"); os.Exit(1) }\n"
)

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		name     string
		files    map[string]string
		failed   bool
		last     string
		contains string
		lacks    string
	}{
		{"all is well", map[string]string{"a/a_test.go": good}, false, "1 passed, 0 failed, 1 skipped", "skipped: example.test/m/a TestB", "quiet"},
		{"a test fails", map[string]string{"a/a_test.go": good, "b/b_test.go": bad}, true, "1 passed, 1 failed, 1 skipped", "loud", "quiet"},
		{"it does not build", map[string]string{"c/c_test.go": wrong}, true, "0 passed, 1 failed, 0 skipped", "undefined", ""},
		{"the end fails", map[string]string{"d/d_test.go": exits}, true, "1 passed, 1 failed, 0 skipped", "FAIL", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			project(t, c.files)
			var out strings.Builder
			failed, err := run(t.Context(), []string{"-count=1"}, &out)
			if err != nil || failed != c.failed {
				t.Fatalf("failed %v, error %v:\n%s", failed, err, out.String())
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if !strings.Contains(lines[len(lines)-1], c.last) || !strings.Contains(out.String(), c.contains) {
				t.Errorf("got:\n%s", out.String())
			}
			if c.lacks != "" && strings.Contains(out.String(), c.lacks) {
				t.Errorf("what passed is shown:\n%s", out.String())
			}
		})
	}
}

func TestAWrongFlagFails(t *testing.T) {
	project(t, map[string]string{"a/a_test.go": good})
	var out strings.Builder
	if failed, err := run(t.Context(), []string{"-nonsense"}, &out); err == nil && !failed {
		t.Fatalf("it passed:\n%s", out.String())
	}
}
