// Package docs holds the pages of this directory, so that a relay can show them where there is no internet. Its tests keep
// guarantees.md honest: every id has one row there, every test that a row names is in the tree, and every test that carries
// an id in its name is named in the row of that id. It needs no server and owns no goroutine.
package docs

import (
	"embed"
	"io/fs"
	"strings"
	"sync"
)

// Pages are the pages, and the lists that compatibility.md names, by their names in this directory.
//
//go:embed *.md zh/*.md operations/*.md layouts/*.md runbooks/*.md examples/*.md contract/*.txt
var Pages embed.FS

// sections are the pages of operations/ by the headings of their sections.
var sections = sync.OnceValue(func() map[string]string {
	pages := map[string]string{}
	names, _ := fs.Glob(Pages, "operations/*.md") // the pattern is a constant
	for _, name := range names {
		text, _ := Pages.ReadFile(name) // it is embedded
		for line := range strings.Lines(string(text)) {
			if heading, is := strings.CutPrefix(line, "## "); is {
				pages[strings.TrimSpace(heading)] = name
			}
		}
	}
	return pages
})

// Section names a section of the handbook for operators as messages write it: the page, a comma and the heading. A section that no page has
// leads to the index; TestSections keeps the messages from naming one.
func Section(heading string) string {
	page, known := sections()[heading]
	if !known {
		page = "operations.md"
	}
	return "docs/" + page + ", " + heading
}
