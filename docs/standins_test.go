package docs_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tests without a real server into guarantees.md")

// starters are the functions that start a real server, by package and name.
var starters = regexp.MustCompile(`^(testkit\.(New|Start|Shared)(Database|DatabaseAs|MySQL|MariaDB|Kafka|RocketMQ|Redis)|story\.Run|tabletest\.(New|On|OnBoth|OnLayouts))$`)

// calls are what the functions and methods of a package mention, by name: of two methods of one name both count.
type calls struct {
	mentions map[string]map[string]bool
	starts   map[string]bool
}

// callsOf reads the test files of a directory.
func callsOf(t *testing.T, dir string) calls {
	t.Helper()
	c := calls{map[string]map[string]bool{}, map[string]bool{}}
	paths, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no tests: %v", dir, err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				c.read(d.Name.Name, d)
			case *ast.GenDecl: // a variable may hold functions
				for _, s := range d.Specs {
					if v, is := s.(*ast.ValueSpec); is {
						for _, name := range v.Names {
							c.read(name.Name, v)
						}
					}
				}
			}
		}
	}
	return c
}

func (c calls) read(name string, node ast.Node) {
	if c.mentions[name] == nil {
		c.mentions[name] = map[string]bool{}
	}
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if of, is := n.X.(*ast.Ident); is && starters.MatchString(of.Name+"."+n.Sel.Name) {
				c.starts[name] = true
			}
			c.mentions[name][n.Sel.Name] = true
		case *ast.Ident:
			c.mentions[name][n.Name] = true
		}
		return true
	})
}

// real reports whether a test reaches a function that starts a real server.
func (c calls) real(test string) bool {
	seen, queue := map[string]bool{test: true}, []string{test}
	for len(queue) > 0 {
		name := queue[0]
		if queue = queue[1:]; c.starts[name] {
			return true
		}
		for next := range c.mentions[name] {
			if _, known := c.mentions[next]; known && !seen[next] {
				seen[next], queue = true, append(queue, next)
			}
		}
	}
	return false
}

// cell is the last cell of a directory's row: "none", "all", or the tests of the page that start no real server.
func (c calls) cell(tests []string) string {
	without := slices.DeleteFunc(slices.Clone(tests), c.real)
	switch len(without) {
	case 0:
		return "none"
	case len(tests):
		return "all"
	}
	return "`" + strings.Join(without, "`, `") + "`"
}

var (
	standIn = regexp.MustCompile("^\\| (`[a-z0-9/`, -]+`) \\| ([^|]+) \\| ([^|]*) \\|$")
	inTicks = regexp.MustCompile("`([^`]+)`")
)

// testsOfThePage are the tests of the page by directory.
func testsOfThePage(t *testing.T) map[string]map[string]bool {
	_, all := rows(t)
	tests := map[string]map[string]bool{}
	for _, r := range all {
		for test := range r.tests {
			function, _, _ := strings.Cut(test.name, "/")
			if tests[test.dir] == nil {
				tests[test.dir] = map[string]bool{}
			}
			tests[test.dir][function] = true
		}
	}
	delete(tests, "sink/sinktest") // the suite that the sinks run, on their fakes and on real brokers
	return tests
}

// Each directory that has tests on the page is in a row that says what stands in for the servers there, and which of its tests start no real one.
// A row of several directories has none that starts one. The last cell is written by -update.
func TestWhatStandsInForTheServers(t *testing.T) {
	tests := testsOfThePage(t)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	var fixed []string
	for _, line := range strings.Split(string(text), "\n") {
		cells := standIn.FindStringSubmatch(line)
		if cells == nil {
			fixed = append(fixed, line)
			continue
		}
		last, dirs := "", inTicks.FindAllStringSubmatch(cells[1], -1)
		if *update && len(dirs) == 1 && said[dirs[0][1]] { // two branches have changed the row, and the merge kept both
			continue
		}
		for _, found := range dirs {
			dir := found[1]
			if said[dir] {
				t.Errorf("%s: %s has two rows: go test ./docs -run TestWhatStandsIn -update, or remove one", page, dir)
			}
			said[dir] = true
			c := callsOf(t, dir)
			for test := range tests[dir] {
				if listed := cells[3] == "all" || strings.Contains(cells[3], "`"+test+"`"); listed == c.real(test) && !*update {
					t.Errorf("%s: the row of %s is wrong about %s, which starts a real server: %v; go test ./docs -run TestWhatStandsIn -update", page, dir, test, c.real(test))
				}
			}
			cell := c.cell(slices.Sorted(maps.Keys(tests[dir])))
			if last != "" && cell != last {
				t.Errorf("%s: %s needs a row of its own", page, dir)
			}
			last = cell
		}
		fixed = append(fixed, "| "+cells[1]+" | "+cells[2]+" | "+last+" |")
	}
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		if !said[dir] {
			t.Errorf("%s: no row says what stands in for the servers in %s", page, dir)
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(strings.Join(fixed, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have := look(t)
	for _, r := range references(string(text)) {
		if !have.exists(r) && r.dir != "sink/sinktest" {
			t.Errorf("%s names %s %s, which is not in the tree", page, r.dir, r.name)
		}
	}
}
