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

	"github.com/canal-outbox/canal-outbox/docs"
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

// operations is the text of the pages for operators.
func operations(t *testing.T) string {
	t.Helper()
	pages, err := filepath.Glob("operations/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%v, %v", pages, err)
	}
	var all strings.Builder
	for _, path := range append(pages, "operations.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// What the pages for operators quote is what the program prints, and the metrics that they name exist.
func TestOperationsQuotesTheProgram(t *testing.T) {
	printed, checked := texts(t), 0
	for _, found := range span.FindAllStringSubmatch(fences.ReplaceAllString(operations(t), ""), -1) {
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

var (
	runbook = regexp.MustCompile(`docs/(operations/[a-z-]+\.md)#([a-z0-9-]+)`)
	section = regexp.MustCompile(`docs/(operations(?:/[a-z-]+)?\.md), ([A-Z][\w '-]*[\w'])`)
)

// Each section of the handbook that an alert or a text of the program names is there, and each alert of the rules is on a page.
func TestSections(t *testing.T) {
	has := func(page, anchor string) bool {
		text, err := os.ReadFile(page)
		return err == nil && anchors(string(text))[anchor]
	}
	rules, err := os.ReadFile("../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, found := range runbook.FindAllStringSubmatch(string(rules), -1) {
		if checked++; !has(found[1], found[2]) {
			t.Errorf("alerts.yaml: %s", found[0])
		}
	}
	handbook := operations(t)
	for _, found := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		if checked++; !strings.Contains(handbook, "`"+found[1]+"`") {
			t.Errorf("no page of operations names the alert %s", found[1])
		}
	}
	for _, found := range regexp.MustCompile("`(CanalOutbox\\w+)`").FindAllStringSubmatch(handbook, -1) {
		if checked++; !strings.Contains(string(rules), "- alert: "+found[1]+"\n") {
			t.Errorf("there is no alert %s", found[1])
		}
	}
	for _, found := range section.FindAllStringSubmatch(texts(t), -1) {
		if checked++; !has(found[1], docs.Anchor(found[2])) {
			t.Errorf("the program names %s", found[0])
		}
	}
	if checked < 60 {
		t.Errorf("only %d were checked", checked)
	}
}
