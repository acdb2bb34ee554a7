package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
)

const page = "guarantees.md"

// ids are the rows of the page, in order.
func ids() (list []string) {
	add := func(format string, first, last int) {
		for n := first; n <= last; n++ {
			list = append(list, fmt.Sprintf(format, n))
		}
	}
	add("P%d", 1, 10)
	add("A%02d", 1, 61)
	add("B%02d", 1, 20)
	add("B%02d", 30, 45)
	add("C%02d", 1, 11)
	add("D%02d", 1, 26)
	add("G%02d", 1, 51)
	for _, class := range []string{"permanent", "refused", "topic", "service", "outage", "unknown", "weak"} {
		for _, system := range []string{"RocketMQ", "Kafka", "MySQL"} {
			if system != "MySQL" || class != "refused" && class != "topic" && class != "weak" {
				list = append(list, "E2 "+class+" "+system)
			}
		}
	}
	return list
}

// reference is a test that the page names: `directory Test` or `directory Test/subtest`, or `directory subtest` for the
// cases of a suite that several packages run. `directory TestA TestB` names two tests.
type reference struct{ dir, name string }

// references returns the tests that a text of the page names.
func references(text string) (list []reference) {
	for _, c := range code.FindAllStringSubmatch(text, -1) {
		for i, name := range strings.Split(c[2], " Test") {
			if i > 0 {
				name = "Test" + name
			}
			list = append(list, reference{c[1], name})
		}
	}
	return list
}

// row is one line of a table.
type row struct {
	line  int
	tests map[reference]bool
}

var (
	cell = regexp.MustCompile(`^\| ([A-G]\d\d|P\d+|E2 [a-z]+ \w+) \|`)
	code = regexp.MustCompile("`([a-z0-9/-]+) (Test[^`]*|[A-GP]\\d+_[^`]*)`")
)

// rows reads the page. A row that is there twice is an error.
func rows(t *testing.T) (order []string, all map[string]row) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]row{}
	for i, line := range strings.Split(string(text), "\n") {
		found := cell.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		id := found[1]
		if _, twice := all[id]; twice {
			t.Errorf("%s:%d: %s has a row already", page, i+1, id)
		}
		r := row{line: i + 1, tests: map[reference]bool{}}
		for _, test := range references(line) {
			r.tests[test] = true
		}
		order, all[id] = append(order, id), r
		if columns := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); columns != 4 {
			t.Errorf("%s:%d: %s has %d columns, want 3", page, i+1, id, columns-1)
		}
	}
	return order, all
}

// tree is what the Go files and recorded histories hold: test functions, and names of subtests.
type tree struct {
	functions map[reference]bool
	subtests  map[reference]bool
}

var (
	// named is how ids begin the name of a test, of a subtest or of a recorded history.
	named = regexp.MustCompile(`^(?:Test)?((?:(?:[A-DG]\d\d|P\d{1,2}|E2)[_ ])+)[A-Za-z0-9]`)
	one   = regexp.MustCompile(`[A-DG]\d\d|P\d{1,2}|E2`)
)

func idsOf(name string) []string {
	if found := named.FindStringSubmatch(name); found != nil {
		return one.FindAllString(found[1], -1)
	}
	return nil
}

// look parses every test of the module, and the conformance suite, whose cases are subtests.
func look(t *testing.T) tree {
	t.Helper()
	have := tree{map[reference]bool{}, map[reference]bool{}}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "../"))
		switch {
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "..":
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, ".go") && dir == "sink/sinktest":
			return have.parse(path, dir)
		case strings.HasSuffix(path, ".txt") && strings.HasSuffix(dir, "testdata/histories"):
			owner := strings.TrimSuffix(dir, "/testdata/histories")
			have.subtests[reference{owner, strings.TrimSuffix(entry.Name(), ".txt")}] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return have
}

func (have tree) parse(path, dir string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") && n.Name.Name != "TestMain" {
				have.functions[reference{dir, n.Name.Name}] = true
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && len(text) < 80 {
				have.subtests[reference{dir, text}] = true
			}
		}
		return true
	})
	return nil
}

// exists reports whether a test that the page names is there.
func (have tree) exists(r reference) bool {
	function, sub, _ := strings.Cut(r.name, "/")
	if !strings.HasPrefix(function, "Test") {
		return r.dir == "sink/sinktest" && have.subtests[r]
	}
	return have.functions[reference{r.dir, function}] && (sub == "" || have.subtests[reference{r.dir, sub}])
}

func TestEveryIDHasItsRow(t *testing.T) {
	order, _ := rows(t)
	want := ids()
	if !slices.Equal(order, want) {
		for _, id := range want {
			if !slices.Contains(order, id) {
				t.Errorf("%s is missing", id)
			}
		}
		t.Errorf("%d rows, want %d, in the order of the ids", len(order), len(want))
	}
}

func TestEveryNamedTestIsThere(t *testing.T) {
	have := look(t)
	_, all := rows(t)
	for id, r := range all {
		for test := range r.tests {
			if !have.exists(test) {
				t.Errorf("%s:%d: %s names %s %s, which is not in the tree", page, r.line, id, test.dir, test.name)
			}
		}
	}
	if len(have.functions) < 300 {
		t.Errorf("only %d tests were seen", len(have.functions))
	}
}

func TestEveryTestWithAnIDIsListed(t *testing.T) {
	have := look(t)
	_, all := rows(t)
	listed := func(id string, test reference) bool {
		for rowID, r := range all {
			if rowID != id && !(id == "E2" && strings.HasPrefix(rowID, "E2 ")) {
				continue
			}
			for named := range r.tests {
				function, sub, _ := strings.Cut(named.name, "/")
				if named.dir == test.dir && (function == test.name || sub == test.name) {
					return true
				}
			}
		}
		return false
	}
	for _, set := range []map[reference]bool{have.functions, have.subtests} {
		for test := range maps.Keys(set) {
			for _, id := range idsOf(test.name) {
				if !listed(id, test) {
					t.Errorf("%s: the row of %s does not name `%s %s`", page, id, test.dir, test.name)
				}
			}
		}
	}
}

// The journal and the broker cannot commit together, so no page may promise what would need that.
func TestB43_NoPageClaimsExactlyOnce(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, "../README.md", "../CHANGELOG.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.ToLower(string(text)), "\n") {
			if strings.Contains(line, "exactly once") && !strings.Contains(line, "never") && !strings.Contains(line, "read_committed") {
				t.Errorf("%s:%d claims it: %s", path, i+1, line)
			}
		}
	}
}

// What a newcomer copies from the README must work as it stands.
func TestTheConfigurationOfTheREADMEIsValid(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```yaml\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatal("the README has no configuration")
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	block = strings.ReplaceAll(strings.ReplaceAll(block, "/run/secrets/mysql", password), "\n   ", "\n")
	block = strings.TrimPrefix(block, "   ")
	for _, sink := range []string{block, strings.Replace(strings.Replace(block, "  rocketmq:", "  # rocketmq:", 1), "  # kafka:", "  kafka:", 1)} {
		if _, _, err := config.Parse("README.md", []byte(sink), nil, app.Sinks); err != nil {
			t.Error(err)
		}
	}
}
