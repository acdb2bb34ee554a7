package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// suites are the columns of the table of servers.md.
var suites = []string{"parts", "layouts", "e2e", "crash", "failover", "soak"}

// serverRow is a line of the table.
var serverRow = regexp.MustCompile(`(?m)^\| ((?:MySQL|MariaDB) [0-9.]+)((?: \| (?:-|\d{4}-\d{2}-\d{2})){6}) \|$`)

// TestServersTable checks the table of the servers. WRITE_SUITE is a suite that has passed on the servers of TEST_MYSQL and TEST_MARIADB: the
// test writes its date into their rows (test/servers/suites.sh).
func TestServersTable(t *testing.T) {
	const page = "servers.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n| server | "+strings.Join(suites, " | ")+" |\n") {
		t.Fatalf("the columns are not %q", suites)
	}
	rows := serverRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) != 5 {
		t.Fatalf("%d rows of servers, or of another form than: server, date or dash for each suite", len(rows))
	}
	for _, row := range rows {
		for i, cell := range cells(row[2]) {
			if at, err := time.Parse(time.DateOnly, cell); cell != "-" && (err != nil || at.After(time.Now().Add(48*time.Hour))) {
				t.Errorf("%s, %s: %q is no date of a run", row[1], suites[i], cell)
			}
		}
	}
	suite := os.Getenv("WRITE_SUITE")
	if suite == "" {
		return
	}
	written, ok := withDate(string(text), suite, ranOn(suite), time.Now().UTC().Format(time.DateOnly))
	if !ok {
		t.Fatalf("suite %q on %q: no such cells", suite, ranOn(suite))
	}
	if err := os.WriteFile(page, []byte(written), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ranOn are the rows of the servers that a suite ran on.
func ranOn(suite string) (servers []string) {
	release := func(variable, otherwise string) string {
		if named := os.Getenv(variable); named != "" {
			return named
		}
		return otherwise
	}
	mySQL, mariaDB := "MySQL "+release("TEST_MYSQL", "8.0"), "MariaDB "+release("TEST_MARIADB", "10.11")
	switch {
	case suite != "soak":
		return []string{mySQL, mariaDB}
	case os.Getenv("SOAK_DATABASE") == "mariadb":
		return []string{mariaDB}
	}
	return []string{mySQL}
}

// withDate puts a date into the cells of a suite.
func withDate(text, suite string, servers []string, date string) (written string, ok bool) {
	column, found := slices.Index(suites, suite), 0
	written = serverRow.ReplaceAllStringFunc(text, func(line string) string {
		row := serverRow.FindStringSubmatch(line)
		if column < 0 || !slices.Contains(servers, row[1]) {
			return line
		}
		found++
		all := cells(row[2])
		all[column] = date
		return "| " + row[1] + " | " + strings.Join(all, " | ") + " |"
	})
	return written, found == len(servers)
}

func cells(text string) []string { return strings.Split(strings.TrimPrefix(text, " | "), " | ") }

// A date is written into the cells of its suite and servers alone; one of an unknown suite or server is refused.
func TestADateIsWrittenIntoItsCell(t *testing.T) {
	const table = "| MySQL 8.0 | - | 2026-01-02 | - | - | - | - |\n| MariaDB 11.8 | - | - | - | - | - | - |\n"
	got, ok := withDate(table, "crash", []string{"MySQL 8.0"}, "2026-03-04")
	if want := "| MySQL 8.0 | - | 2026-01-02 | - | 2026-03-04 | - | - |\n| MariaDB 11.8 | - | - | - | - | - | - |\n"; !ok || got != want {
		t.Errorf("written %v:\n%s", ok, got)
	}
	for suite, servers := range map[string][]string{"crash": {"MySQL own"}, "lunch": {"MySQL 8.0"}} {
		if got, ok := withDate(table, suite, servers, "2026-03-04"); ok || got != table {
			t.Errorf("%s on %s was written:\n%s", suite, servers, got)
		}
	}
}
