package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mutation is one entry of the lists of the simulation (test/sim/mutants*_test.go), read from the source: its edits replace texts of a file.
type mutation struct {
	at, rule, file string
	edits          [][2]string
}

// TestMutationsOfTheSimulationFitTheCode applies the edits of each mutation without a build. An edit must fit exactly one place of its file. Each
// mutation is checked by itself, so one that does not fit does not hide others.
func TestMutationsOfTheSimulationFitTheCode(t *testing.T) {
	paths, err := filepath.Glob("../../test/sim/mutants*_test.go")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no lists of mutations: %v", err)
	}
	seen := 0
	for _, path := range paths {
		list, err := readMutations(path)
		if err != nil {
			t.Error(err)
		}
		for _, m := range list {
			seen++
			if err := m.fits(); err != nil {
				t.Errorf("%s: mutation %q: %v", m.at, m.rule, err)
			}
		}
	}
	if seen < 80 {
		t.Errorf("%d mutations were found in %v: are the lists elsewhere?", seen, paths)
	}
}

// fits applies the edits one after the other.
func (m *mutation) fits() error {
	raw, err := os.ReadFile(filepath.Join("../..", m.file))
	if err != nil {
		return err
	}
	text := string(raw)
	if len(m.edits) == 0 {
		return fmt.Errorf("it has no edits")
	}
	for _, e := range m.edits {
		if n := strings.Count(text, e[0]); n != 1 {
			return fmt.Errorf("%d places of %s are like the text below; change the mutation so that it breaks the same rule in the present code\n%s", n, m.file, e[0])
		}
		if e[0] == e[1] {
			return fmt.Errorf("an edit changes nothing")
		}
		text = strings.Replace(text, e[0], e[1], 1)
	}
	return nil
}

// readMutations reads the composite literals that have a file and edits. All their texts are constants.
func readMutations(path string) (list []mutation, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		fields := map[string]ast.Expr{}
		for _, e := range lit.Elts {
			if pair, ok := e.(*ast.KeyValueExpr); ok {
				fields[fmt.Sprint(pair.Key)] = pair.Value
			}
		}
		if fields["file"] == nil || fields["edits"] == nil {
			return true
		}
		m := mutation{at: set.Position(lit.Pos()).String(), rule: textOf(fields["rule"], &err), file: textOf(fields["file"], &err)}
		for _, e := range fields["edits"].(*ast.CompositeLit).Elts {
			pair := e.(*ast.CompositeLit).Elts
			m.edits = append(m.edits, [2]string{textOf(pair[0], &err), textOf(pair[1], &err)})
		}
		list = append(list, m)
		return false
	})
	return list, err
}

// textOf returns the value of a text that is written as one literal or several with + between them. An error goes to err.
func textOf(e ast.Expr, err *error) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, fault := strconv.Unquote(e.Value)
		if fault != nil {
			*err = fmt.Errorf("%s: %w", e.Value, fault)
		}
		return text
	case *ast.BinaryExpr:
		return textOf(e.X, err) + textOf(e.Y, err)
	}
	*err = fmt.Errorf("a text of a mutation is no constant: %T", e)
	return ""
}
