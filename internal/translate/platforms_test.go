package translate

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// statement is a cure that is the same in every language.
var statement = regexp.MustCompile(`^(GRANT|CALL|SET GLOBAL|ALTER TABLE) [^(]*(\('binlog retention hours', \d+\))?$`)

// What doctor says on each of the platforms is Chinese, finding by finding.
func TestWhatDoctorSaysOnEachPlatform(t *testing.T) {
	names, err := filepath.Glob("../doctor/testdata/platforms/*.golden")
	if err != nil || len(names) < 12 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "GRANT ") {
				continue
			}
			_, what, _ := strings.Cut(strings.TrimSpace(line), ": ") // behind the severity and the subject, or "fix"
			if got := Chinese().Text(what); !hasHan(got) && !statement.MatchString(what) {
				t.Errorf("%s: %s", filepath.Base(name), line)
			}
		}
	}
}
