package testkit

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// skipRecorder is a T that remembers why a test was skipped.
type skipRecorder struct {
	T
	skipped string
}

func (r *skipRecorder) Skipf(format string, args ...any) { r.skipped = fmt.Sprintf(format, args...) }

// MySQL is 8.0 or the release that is named, and a flavor that names its release is that one always.
func TestChosenRelease(t *testing.T) {
	t.Setenv(mySQLRelease, "")
	t.Setenv(mariaDBRelease, "")
	byDefault := MySQL97
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		byDefault = MySQL80
	}
	if chosen(MySQL) != byDefault || chosen(MariaDB) != MariaDB || chosen(MySQL57) != MySQL57 {
		t.Errorf("without a choice: %s, %s, %s", chosen(MySQL), chosen(MariaDB), chosen(MySQL57))
	}
	t.Setenv(mySQLRelease, "5.7")
	t.Setenv(mariaDBRelease, "11.8")
	if chosen(MySQL) != MySQL57 || chosen(MariaDB) != MariaDB118 || chosen(MySQL97) != MySQL97 {
		t.Errorf("with a choice: %s, %s, %s", chosen(MySQL), chosen(MariaDB), chosen(MySQL97))
	}
}

// A test that needs more than the chosen release is skipped, and says why; without a choice it runs on 9.7.
func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		chosen, since string
		flavor, want  Flavor
		skipped       string
	}{
		{"8.0", "8.0", MySQL, MySQL, ""},
		{"8.0", "5.7", MySQL, MySQL, ""},
		{"5.7", "8.0", MySQL, MySQL, "MySQL 5.7: it has no feature"},
		{"", "8.3", MySQL, MySQL97, ""},
		{"5.7", "8.3", MariaDB, MariaDB, ""},
		{"5.7", "8.3", MySQL97, MySQL97, ""},
	} {
		if c.chosen == "" && chosen(MySQL) == MySQL97 {
			continue
		}
		t.Setenv(mySQLRelease, c.chosen)
		r := &skipRecorder{T: t}
		if got := Needs(r, c.flavor, c.since, "feature"); got != c.want || r.skipped != c.skipped {
			t.Errorf("%+v: %s, skipped: %q", c, got, r.skipped)
		}
	}
}

func TestReleasesAreCompared(t *testing.T) {
	for text, before := range map[string]string{"Ver 8.0.31 for Linux": "8.3", "5.7.22-log": "8.0", "8.4": "9.0", "9.7": "10.0"} {
		a, ok := parseRelease(text)
		if b := mustRelease(t, before); !ok || !a.before(b) || b.before(a) || a.before(a) {
			t.Errorf("%s is %+v and not before %s", text, a, before)
		}
	}
	if _, ok := parseRelease(strings.Repeat("9", 30) + ".1"); ok {
		t.Error("a number that is too large")
	}
}
