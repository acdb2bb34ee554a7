package migrations

import (
	"regexp"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// The columns and keys of the relay's own table, of the inbox and of the table for those who have none.
func TestContractTables(t *testing.T) {
	var lines []string
	for _, name := range []string{"lease", "inbox_message", "t_local_message"} {
		ddl, err := DDL(name, "s.t")
		testkit.Must(t, err)
		for line := range strings.Lines(ddl) {
			line = strings.Trim(regexp.MustCompile(`\s+`).ReplaceAllString(line, " "), " ,")
			if line == "" || strings.HasPrefix(line, "--") || strings.HasPrefix(line, "CREATE TABLE") || strings.HasPrefix(line, ")") {
				continue
			}
			line, _, _ = strings.Cut(line, " COMMENT ")
			lines = append(lines, name+" "+line)
		}
	}
	testkit.Contract(t, "tables", lines)
}
