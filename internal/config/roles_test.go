package config

import (
	"strings"
	"testing"
)

// The read token is set in addition to the operator's, differs from it, and is long enough.
func TestReadToken(t *testing.T) {
	for section, want := range map[string]string{
		"token: 0123456789abcdef, read_token: fedcba9876543210": "",
		"read_token: fedcba9876543210":                          "needs admin.token",
		"token: 0123456789abcdef, read_token: 0123456789abcdef": "the same as admin.token",
		"token: 0123456789abcdef, read_token: short":            "could be guessed",
		"listen: '', read_token: fedcba9876543210":              "has no effect",
	} {
		text := minimal + "\nadmin: {" + section + "}\n"
		if want == "" {
			if got := parse(t, text).Admin.ReadToken.Get(); got != "fedcba9876543210" {
				t.Errorf("%s: %q", section, got)
			}
			continue
		}
		if got := faults(t, text); len(got) != 1 || got[0].Path != "admin.read_token" || !strings.Contains(got[0].Reason, want) {
			t.Errorf("%s: %v, want %q", section, got, want)
		}
	}
}
