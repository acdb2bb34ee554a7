// Package docs holds the pages of this directory, so that a relay can show them where there is no internet. Its tests keep
// guarantees.md honest: every id has one row there, every test that a row names is in the tree, and every test that carries
// an id in its name is named in the row of that id. It needs no server and owns no goroutine.
package docs

import (
	"embed"
	"io/fs"
	"regexp"
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

// translated are the Chinese pages and headings by the headings of the English sections, which a comment before each Chinese heading names.
var translated = sync.OnceValue(func() map[string][2]string {
	english := map[string]string{} // headings by page and anchor
	for heading, page := range sections() {
		english[page+"#"+Anchor(heading)] = heading
	}
	found := map[string][2]string{}
	names, _ := fs.Glob(Pages, "zh/*.md") // the pattern is a constant
	for _, name := range names {
		text, _ := Pages.ReadFile(name) // it is embedded
		for _, m := range origin.FindAllSubmatch(text, -1) {
			if heading, is := english[string(m[1])]; is {
				found[heading] = [2]string{name, string(m[2])}
			}
		}
	}
	return found
})

// origin is the comment before a Chinese section, with the section.
var origin = regexp.MustCompile(`<!-- from docs/(\S+#\S+)(?: [0-9a-f]{8})? -->\n## (.+)\n`)

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// Anchor is the anchor of a heading in a link.
func Anchor(heading string) string {
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// Chinese returns the Chinese page and heading for the heading of a section of the handbook for operators.
func Chinese(heading string) (page, translatedHeading string, known bool) {
	t, known := translated()[heading]
	return t[0], t[1], known
}

// ChineseSections are the Chinese pages and headings of all sections of the handbook by their English headings.
func ChineseSections() map[string][2]string { return translated() }

// Section names a section of the handbook for operators as messages write it: the page, a comma and the heading. A section that no page has
// leads to the index; TestSections keeps the messages from naming one.
func Section(heading string) string {
	page, known := sections()[heading]
	if !known {
		page = "operations.md"
	}
	return "docs/" + page + ", " + heading
}
