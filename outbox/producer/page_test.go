package producer_test

import (
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/producer"
)

var statementOfLayout = regexp.MustCompile("(?s)#### ([^\n]+)\n(?:[^#`]|`[^`])*```sql\n(.*?);\n```")

// The page for applications has a statement for each layout, and it runs on the table as its owners have it, in strict mode.
func TestTheStatementsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/applications.md")
	testkit.Must(t, err)
	statements := map[producer.Preset]string{}
	for _, found := range statementOfLayout.FindAllStringSubmatch(string(page), -1) {
		statements[producer.Preset(found[1])] = found[2]
	}
	onBoth(t, func(t *testing.T, db *sql.DB) {
		for preset := range tables {
			name, rest, _ := strings.Cut(strings.TrimPrefix(statements[preset], "INSERT INTO "), " ")
			if name == "" {
				t.Errorf("the page has no statement for %s", preset)
				continue
			}
			testkit.Exec(t, db, fmt.Sprintf(tables[preset], "`"+name+"`"))
			var values []any
			for i := range strings.Count(rest, "?") {
				values = append(values, fmt.Sprint(i)) // fits numbers, texts and JSON
			}
			testkit.Exec(t, db, statements[preset], values...)
			testkit.Exec(t, db, "DROP TABLE `"+name+"`")
		}
	})
}
