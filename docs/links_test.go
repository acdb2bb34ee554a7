package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/docs"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// anchors are the names by which links reach the headings of a page.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fences.ReplaceAllString(page, ""), -1) {
		all[docs.Anchor(h[1])] = true
	}
	return all
}

// Every link from one page to another leads to a file, and to a heading if it names one; and every page is reached from the index.
func TestLinks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md", "../*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	checked, reached := 0, map[string]bool{"README.md": true}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range link.FindAllStringSubmatch(fences.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(l[1], "://") || strings.HasPrefix(l[1], "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(l[1], "#")
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			if page == "README.md" || page == "zh/README.md" || page == "operations.md" || page == "runbooks/README.md" || page == "layouts/README.md" {
				reached[to] = true
			}
			there, err := os.ReadFile(to)
			switch checked++; {
			case err != nil:
				if info, statErr := os.Stat(to); statErr != nil || !info.IsDir() {
					t.Errorf("%s: %s: %v", page, l[1], err)
				}
			case anchor != "" && !anchors(string(there))[anchor]:
				t.Errorf("%s: %s has no such heading", page, l[1])
			}
		}
	}
	for _, page := range pages {
		if !strings.HasPrefix(page, "../") && !strings.HasPrefix(page, "decisions/") && !reached[page] {
			t.Errorf("docs/README.md does not lead to %s", page)
		}
	}
	if checked < 100 {
		t.Errorf("only %d links were checked", checked)
	}
}
