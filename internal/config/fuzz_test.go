package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad: no input makes Parse panic or hang, and an accepted one prints and reads back equally.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range []string{minimal, "a: &a [*a]", "<<: {<<: *x}", "? [a]: b", "source: &s {tls: *s}", "{", "- - -", "\x00", "retry: {schedule: [1m, ~]}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// A fuzzer must not read a file that the input names.
		if strings.Contains(string(data), "_file") {
			return
		}
		cfg, _, err := Parse("fuzz.yaml", data, nil, testSinks)
		if err != nil {
			_ = err.Error()
			return
		}
		printed, err := cfg.Print()
		if err != nil {
			t.Fatal(err)
		}
		// A printed secret is a mask, which may be too short where a minimum length is required.
		if cfg.Admin.Token.Set() {
			return
		}
		again, _, err := Parse("printed.yaml", printed, nil, testSinks)
		if err != nil {
			t.Fatalf("printed as %s: %v", printed, err)
		}
		if second, err := again.Print(); err != nil || string(second) != string(printed) {
			t.Fatalf("printed as %s, then as %s (%v)", printed, second, err)
		}
	})
}
