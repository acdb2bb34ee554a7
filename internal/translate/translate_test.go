package translate

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	"unicode"

	"github.com/canal-outbox/canal-outbox/docs"
)

// page is the file of the page, which may repeat what others have.
const page = "zh/page.json"

// entries reads the files with their order and their repetitions, which a map has not; the page's or the others.
func entries(t *testing.T, ofPage bool) (all [][2]string) {
	t.Helper()
	names, err := fs.Glob(files, "zh/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if (name == page) != ofPage {
			continue
		}
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		for depth := 0; ; {
			token, err := d.Token()
			if err != nil {
				break
			}
			switch v := token.(type) {
			case json.Delim:
				depth++
			case string:
				to, err := d.Token()
				if err != nil {
					t.Fatalf("%s: %s: %v", name, v, err)
				}
				all = append(all, [2]string{v, to.(string)})
			}
		}
	}
	return all
}

// Each sentence is in the catalogue once, is one line, and its translation has the same parts.
func TestCatalogue(t *testing.T) {
	t.Run("sentences", func(t *testing.T) { catalogue(t, entries(t, false), 400) })
	t.Run("page", func(t *testing.T) { catalogue(t, entries(t, true), 200) })
}

func catalogue(t *testing.T, all [][2]string, least int) {
	t.Helper()
	seen := map[string]bool{}
	for _, e := range all {
		from, to := e[0], e[1]
		if seen[from] {
			t.Errorf("twice: %s", from)
		}
		seen[from] = true
		if strings.ContainsAny(from+to, "\n\t") || from != strings.TrimSpace(from) || to == "" {
			t.Errorf("not one trimmed line: %q: %q", from, to)
		}
		var parts []any
		for i, v := range verb.FindAllString(from, -1) {
			if v != "%%" {
				parts = append(parts, fmt.Sprintf("part%d", i))
			}
		}
		text := to
		if len(parts) > 0 {
			text = fmt.Sprintf(to, parts...)
		}
		if strings.Contains(text, "%!") {
			t.Errorf("%s: %s", from, text)
		}
		for _, part := range parts {
			if !strings.Contains(text, part.(string)) {
				t.Errorf("%s: %s lacks %s", from, to, part)
			}
		}
	}
	if len(seen) < least {
		t.Errorf("only %d sentences", len(seen))
	}
}

// sources are the files whose sentences a person is shown by status and doctor.
var sources = []string{
	"internal/doctor/*.go", "internal/operator/judge.go", "internal/operator/cause.go", "internal/operator/trace.go", "internal/operator/preview.go", "internal/operator/readback.go", "internal/app/notes.go", "internal/app/past.go", "internal/app/refused.go", "internal/app/waiting.go",
	"outbox/table/check.go", "outbox/table/charset.go", "outbox/table/fitting.go", "outbox/table/lacks.go", "outbox/table/logonly.go", "outbox/table/pattern.go", "outbox/table/sweep_index.go",
	"outbox/query/ages.go", "outbox/query/values.go", "outbox/server/check.go", "outbox/server/purge.go", "outbox/server/cures.go", "outbox/store/explain.go", "outbox/store/moved.go", "outbox/store/discard.go",
	"sink/*/check.go", "lease/check.go", "internal/adopt/connect.go", "internal/adopt/broker.go", "internal/adopt/table.go", "internal/adopt/words.go",
}

// elsewhere are texts of the sources that are not shown by these commands, that are the same in every language, or that are a part of a
// sentence which the catalogue has as a whole.
var elsewhere = regexp.MustCompile(`^(SELECT|SHOW|EXPLAIN( |$)|EXPLAIN FORMAT|GRANT |UPDATE|DELETE|INSERT|CREATE|ALTER|DROP|ADD |MODIFY|CALL |MAX\(|CAST|IF\(|CHARSET|FROM |AND |WHERE|ORDER|GROUP|COUNT|LIMIT|code, |REPLICATION|BINLOG|EXECUTE|LONGTEXT|IS_NULL|TABLE_)` +
	`|^\W*(%s\W*)*$|[)(]\?|^\^|^ (SELECT|FROM|WHERE|ORDER|AND|GROUP|DESC|LIMIT|COLLATE|CHARACTER|NOT|COMMENT|AS|OR|>|<)|%s (AS|NULL|NOT|>|DESC)|: %w$|kafka-\w+\.sh|^SET GLOBAL max_allowed|^%s (= \d+|--host|--socket|%d)|expire_logs_days|^CHARACTER SET|Cloud SQL Server CA|binlog stream is open|^%q \(%d %s\)|the messages are there|^(pending new init|sent published|failed fail) |^\) SELECT|^> 0$|^%sAn account with|repair or delete them|trace one of them|takes no notes; look|^NULL or|^%s \(%s of %s\)|^2006-|refused; %s$|it%s; the table|SENT%s|%[sv]\)%s$|%d %s$|; fix: %s$|^(no_verb|keep logs|log filter|binlog retention hours|server\.binlog.*|topic %s|command denied)$`)

// fold is a literal, or several that are joined; what is not literal is %s.
func fold(e ast.Expr) (string, bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		return text, x.Kind == token.STRING && err == nil
	case *ast.ParenExpr:
		return fold(x.X)
	case *ast.BinaryExpr:
		left, a := fold(x.X)
		right, b := fold(x.Y)
		if x.Op != token.ADD || !a && !b {
			return "", false
		}
		if !a {
			left = "%s"
		}
		if !b {
			right = "%s"
		}
		return left + right, true
	}
	return "", false
}

// literals returns the texts of more than one word in Go files, by line.
func literals(t *testing.T, patterns ...string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, pattern := range patterns {
		names, err := filepath.Glob("../../" + pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if _, tag := n.(*ast.Field); tag {
					return false
				}
				e, is := n.(ast.Expr)
				if !is {
					return true
				}
				text, is := fold(e)
				if is && strings.Contains(text, " ") {
					at := strings.TrimPrefix(set.Position(e.Pos()).String(), "../../")
					all[at] = append(all[at], strings.Split(text, "\n")...)
				}
				return !is
			})
		}
	}
	return all
}

// english is a part of a sentence that was not translated; statements and commands are not written like this.
var english = regexp.MustCompile(`\b[a-z]{2,} [a-z]{2,} [a-z]{2,} [a-z]{2,}\b`)

func hasHan(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// glued is a part that may be empty.
var glued = regexp.MustCompile(`([A-Za-z])%s$`)

// filled is a format with a value for each verb.
func filled(format string) string {
	format = glued.ReplaceAllString(format, "$1")
	return verb.ReplaceAllStringFunc(format, func(v string) string {
		switch v[len(v)-1] {
		case '%':
			return "%"
		case 'd':
			return "7"
		case 'f':
			return "7.5"
		case 'q':
			return `"x"`
		}
		return "x"
	})
}

// The catalogue has every sentence of the sources.
func TestEverySentenceIsTranslated(t *testing.T) {
	var all string // a literal may be a part of a sentence that is put together
	for _, e := range entries(t, false) {
		all += verb.ReplaceAllString(e[0], "%s") + "\n"
	}
	checked := 0
	for at, texts := range literals(t, sources...) {
		for _, text := range texts {
			for cell := range strings.SplitSeq(text, "\t") {
				cell = strings.TrimSpace(cell)
				if !strings.Contains(cell, " ") || elsewhere.MatchString(cell) {
					continue
				}
				if _, _, heading := docs.Chinese(cell); heading {
					continue
				}
				checked++
				sample := filled(cell)
				if strings.ContainsRune(ends, rune(sample[0])) {
					sample = "x" + sample
				}
				if got := Chinese().Text(sample); (!hasHan(got) || english.MatchString(got)) && !strings.Contains(all, verb.ReplaceAllString(cell, "%s")) {
					t.Errorf("%s: %q is not in the catalogue", at, cell)
				}
			}
		}
	}
	if checked < 300 {
		t.Errorf("only %d sentences were looked for", checked)
	}
}

// composed are entries whose English is put together by statements, not by a literal; the golden files have them.
var composed = regexp.MustCompile(`^(active|standby|lapsed|off)\b|^(oldest pending|oldest claim|longest wait for a retry) %s$|breaker closed$|^the broker has acknowledged it|^SENT|^(pending|delayed|sending|sent|failed|held) (about|at least) %d$|they were run\)$|rows or more\)$`)

// An entry of the catalogue whose sentence no source has is a sentence that was changed.
func TestNoEntryIsStale(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "internal/translate/") {
			return err
		}
		switch filepath.Ext(name) {
		case ".js", ".html":
			text, err := os.ReadFile(name)
			code.Write(text)
			return err
		case ".go":
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				e, is := n.(ast.Expr)
				if !is {
					return true
				}
				text, is := fold(e)
				if is {
					code.WriteString(text + "\n")
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all := code.String()
	for _, e := range append(entries(t, false), entries(t, true)...) {
		if composed.MatchString(e[0]) {
			continue
		}
		for chunk := range strings.SplitSeq(verb.ReplaceAllString(e[0], "\x00"), "\x00") {
			chunk = strings.TrimLeft(chunk, ends+" ") // a source may add the punctuation
			if len(chunk) >= 12 && !strings.Contains(all, chunk) {
				t.Errorf("%q: no source has %q", e[0], chunk)
			}
		}
	}
}
