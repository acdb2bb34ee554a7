package sim

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every mutation fits the present code and compiles. Only the package of the changed file is type-checked; its imports come from the
// build cache.
func TestMutationsCompile(t *testing.T) {
	list := slices.Concat(mutations, graceMutations, againMutations, readBackMutations, exactlyMutations, leftMutations, teamMutations)
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", exportData(t, list))
	for _, m := range list {
		if err := m.compile(fset, imports); err != nil {
			t.Errorf("%s: %s: %v", m.rule, m.file, err)
		}
	}
}

// exportData finds what the compiler knows of the packages that the mutated packages import.
func exportData(t *testing.T, list []mutation) importer.Lookup {
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}
	for _, m := range list {
		if dir := "./" + filepath.Dir(m.file); !slices.Contains(args, dir) {
			args = append(args, dir)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// compile type-checks the package with the edits.
func (m mutation) compile(fset *token.FileSet, imports types.Importer) error {
	mutant, text, err := m.mutated()
	if err != nil {
		return err
	}
	pkg, err := build.ImportDir(filepath.Dir(mutant), 0)
	if err != nil {
		return err
	}
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		var source any
		path := filepath.Join(pkg.Dir, name)
		if path == mutant {
			source = text
		}
		file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	_, err = (&types.Config{Importer: imports}).Check(pkg.Name, fset, files, nil)
	return err
}
