package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// The limits of the house: what a reader can remember at once.
const (
	maxFileLines     = 400
	maxFunctionLines = 60
)

// vague are package names that say nothing about what is inside.
var vague = map[string]bool{"util": true, "utils": true, "common": true, "types": true, "base": true, "helpers": true, "misc": true, "shared": true}

// goFiles calls f for each Go file of the tree.
func goFiles(t *testing.T, f func(path string)) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." || entry.Name() == "testdata"):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(path, ".go"):
			f(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesAndFunctionsAreSmall(t *testing.T) {
	seen := 0
	goFiles(t, func(path string) {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		seen++
		name := strings.TrimPrefix(path, "../../")
		if lines := set.File(file.Pos()).LineCount(); lines > maxFileLines {
			t.Errorf("%s has %d lines, %d at most: where would a newcomer cut it?", name, lines, maxFileLines)
		}
		if vague[file.Name.Name] {
			t.Errorf("%s: package %s says nothing by its name", name, file.Name.Name)
		}
		for _, decl := range file.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := set.Position(function.End()).Line - set.Position(function.Pos()).Line + 1
			// Tests are tables as often as code, and a table is read line by line.
			if lines > maxFunctionLines && !strings.HasSuffix(path, "_test.go") {
				t.Errorf("%s: %s has %d lines, %d at most", name, function.Name.Name, lines, maxFunctionLines)
			}
		}
	})
	if seen < 50 {
		t.Fatalf("only %d files were seen", seen)
	}
}

// forbidden are words that mark what must not be committed, and library calls that are known to kill the process.
var forbidden = map[string]string{
	"TODO":      "write it into the known limits of the CHANGELOG, with an owner",
	"FIXME":     "fix it",
	"SendAsync": "RocketMQ's SendAsync ends the process on a timeout (failure B01)",
	"log.Fatal": "return an error: only main ends the process",
}

func TestNothingForbiddenIsLeft(t *testing.T) {
	goFiles(t, func(path string) {
		if strings.Contains(path, "internal/archtest/") {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		report := func(at token.Pos, text string) {
			for word, why := range forbidden {
				if strings.Contains(text, word) {
					t.Errorf("%s: %s: %s", strings.TrimPrefix(set.Position(at).String(), "../../"), word, why)
				}
			}
		}
		for _, group := range file.Comments {
			if text := group.Text(); strings.Contains(text, "TODO") || strings.Contains(text, "FIXME") {
				report(group.Pos(), text)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if s, ok := call.Fun.(*ast.SelectorExpr); ok {
					owner := ""
					if id, ok := s.X.(*ast.Ident); ok {
						owner = id.Name + "."
					}
					report(call.Pos(), owner+s.Sel.Name)
				}
			}
			return true
		})
	})
}
