package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// texts returns what the program's literals say, those that are put together with + as one.
func texts(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != ".." || entry.Name() == "test"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if text := literal(e); ok && text != "" {
				all.WriteString(text + "\n")
				return false
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// literal is the text of a literal, or of several with + between them; what is not literal is left out.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return literal(e.X) + literal(e.Y)
		}
	}
	return ""
}

var (
	fences = regexp.MustCompile("(?s)```.*?```")
	span   = regexp.MustCompile("`([^`]+)`")
	// phrase is a message: words, not a command, a statement, a path or a key.
	phrase = regexp.MustCompile(`^[a-z]+( [a-zA-Z;:,.'-]+){2,}$`)
	// metric is a name with a part behind an underscore, and perhaps labels.
	metric = regexp.MustCompile(`^([a-z]+(?:_[a-z]+)+)(?:\{.*\})?$`)
	// elsewhere are names of servers, and columns of the preset.
	elsewhere = regexp.MustCompile(`^(max_connections|sql_log_bin|sync_binlog|binlog_row_metadata|[a-z_]+_(count|time|reason|id|at|message|retry))$`)
)

// What the page for the person on call quotes is what the program prints, and the metrics that it names exist.
func TestOperationsQuotesTheProgram(t *testing.T) {
	page, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	printed, checked := texts(t), 0
	for _, found := range span.FindAllStringSubmatch(fences.ReplaceAllString(string(page), ""), -1) {
		quote := strings.TrimRight(strings.Join(strings.Fields(found[1]), " "), ".: ")
		for _, part := range strings.Split(strings.ReplaceAll(quote, " T ", "..."), "...") { // what stands for a value
			part = strings.Trim(part, " ;:")
			name := metric.FindStringSubmatch(part)
			switch {
			case strings.HasPrefix(part, "canal-outbox "):
			case phrase.MatchString(part):
				if checked++; !strings.Contains(printed, part) {
					t.Errorf("the program never says %q", part)
				}
			case name != nil && !elsewhere.MatchString(name[1]):
				if checked++; !strings.Contains(printed, name[1]) {
					t.Errorf("there is no metric %s", name[1])
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d quotes were checked", checked)
	}
}
