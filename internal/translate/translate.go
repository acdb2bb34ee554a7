// Package translate shows the sentences of the relay in the language of the person who reads them. A sentence is made in English where
// its cause is known, and is translated only where it is shown: in a terminal and on the page. JSON, logs, alerts and exit codes are English
// in every language, so that scripts and searches work everywhere.
//
// The catalogue of a language is the files in its directory: English sentences, with a verb of package fmt in place of each part that
// varies, and the translation of each. One that begins with ";", "," or ":" is the end of a sentence that may begin in several ways.
//
// Guarantee: what the catalogue lacks is shown in English, and no part of a sentence is lost. Identifiers (a word without a space) are never
// translated inside a sentence. The package owns no goroutine.
package translate

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/text/language"

	"github.com/canal-outbox/canal-outbox/docs"
)

//go:embed zh/*.json
var files embed.FS

// Catalogue translates into one language. A nil one leaves all text as it is.
type Catalogue struct {
	words    map[string]string // whole texts and formats
	page     map[string]string // those of the page, which asks for them by the format
	patterns []pattern         // those with the most text first
}

// pattern is a sentence with parts that vary.
type pattern struct {
	from *regexp.Regexp
	to   string // a format whose arguments are the parts, in the order of from unless it has indexes
	text int    // characters that do not vary
}

// Chinese is the catalogue for simplified Chinese.
var Chinese = sync.OnceValue(func() *Catalogue {
	names, _ := fs.Glob(files, "zh/*.json") // the pattern is a constant
	c := &Catalogue{words: map[string]string{}}
	for _, name := range names {
		text, _ := files.ReadFile(name) // it is embedded
		var entries map[string]string
		if err := json.Unmarshal(text, &entries); err != nil {
			panic(name + ": " + err.Error()) // TestCatalogue reads it too
		}
		if name == "zh/page.json" {
			c.page = entries
			continue
		}
		for from, to := range entries {
			c.add(from, to)
		}
	}
	slices.SortFunc(c.patterns, func(a, b pattern) int {
		return cmp.Or(cmp.Compare(b.text, a.text), cmp.Compare(a.from.String(), b.from.String()))
	})
	return c
})

// Of returns the catalogue for the variables of the environment: LC_ALL, LC_MESSAGES and LANG in this order, as POSIX has it. It is nil for
// English, for a language without a catalogue, and where the character set is not UTF-8, in which the catalogue is.
func Of(environment func(string) string) *Catalogue {
	locale := cmp.Or(environment("LC_ALL"), environment("LC_MESSAGES"), environment("LANG"))
	name, charset, has := strings.Cut(locale, ".")
	charset, _, _ = strings.Cut(charset, "@")
	if has && !strings.EqualFold(strings.ReplaceAll(charset, "-", ""), "utf8") {
		return nil
	}
	tag, err := language.Parse(name)
	if err != nil {
		return nil // C, POSIX
	}
	if base, _ := tag.Base(); base.String() != "zh" {
		return nil
	}
	return Chinese()
}

// verb is one of package fmt.
var verb = regexp.MustCompile(`%(?:\[\d+\])?[-+# 0]*[0-9]*(?:\.[0-9]+)?[a-zA-Z%]`)

// ends are the first characters of the end of a sentence.
const ends = ";,:"

func (c *Catalogue) add(from, to string) {
	c.words[from] = to
	end := strings.ContainsRune(ends, rune(from[0]))
	found := verb.FindAllStringIndex(from, -1)
	if len(found) == 0 && !end {
		return
	}
	var expression strings.Builder
	expression.WriteString(`^`)
	if end {
		expression.WriteString(`(.+?)`)
	}
	at, text := 0, len(from)
	for _, f := range found {
		expression.WriteString(regexp.QuoteMeta(from[at:f[0]]) + group(from[f[0]:f[1]]))
		at, text = f[1], text-(f[1]-f[0])
	}
	expression.WriteString(regexp.QuoteMeta(from[at:]) + `$`)
	if end {
		to = "%s" + to
	}
	c.patterns = append(c.patterns, pattern{regexp.MustCompile(expression.String()), to, text})
}

// group is the expression for what a verb prints.
func group(verb string) string {
	switch verb[len(verb)-1] {
	case '%':
		return `%`
	case 'd':
		return `(-?\d+)`
	case 'f':
		return `(-?[\d.]+)`
	case 'q':
		return `("(?:[^"\\]|\\.)*")`
	}
	return `(.*?)`
}

// Text translates a text of one line. A list whose parts are separated by commas is translated part by part, if the catalogue has the first.
func (c *Catalogue) Text(english string) string {
	if c == nil {
		return english
	}
	core := strings.TrimSpace(english)
	if core == "" {
		return english
	}
	translated, _ := c.sentence(core)
	before, after, _ := strings.Cut(english, core)
	return before + sections.ReplaceAllStringFunc(translated, section) + after
}

func (c *Catalogue) sentence(english string) (string, bool) {
	if to, exact := c.words[english]; exact {
		return to, true
	}
	for _, p := range c.patterns {
		found := p.from.FindStringSubmatch(english)
		if found == nil {
			continue
		}
		parts := make([]any, len(found)-1)
		for i, part := range found[1:] {
			if strings.Contains(part, " ") {
				part, _ = c.sentence(part)
			}
			parts[i] = part
		}
		return fmt.Sprintf(p.to, parts...), true
	}
	parts := strings.Split(english, ", ")
	if len(parts) == 1 {
		return english, false
	}
	for i, part := range parts {
		var known bool
		if parts[i], known = c.sentence(part); !known && i == 0 {
			return english, false
		}
	}
	return strings.Join(parts, "，"), true
}

// sections finds a section of the handbook, as docs.Section writes it.
var sections = regexp.MustCompile(`docs/operations(?:/[a-z-]+)?\.md, ([A-Z][\w '-]*[\w'])`)

// section replaces a section of the handbook by the Chinese one.
func section(english string) string {
	page, heading, known := docs.Chinese(sections.FindStringSubmatch(english)[1])
	if !known {
		return english
	}
	return "docs/" + page + "，" + heading
}

// Lines translates a text by its lines and, in each, by the cells between tabs. A cell of one word behind the first is an identifier.
func (c *Catalogue) Lines(english string) string {
	if c == nil {
		return english
	}
	var all strings.Builder
	for line := range strings.Lines(english) {
		text, end := strings.TrimSuffix(line, "\n"), line[len(strings.TrimSuffix(line, "\n")):]
		cells := strings.Split(text, "\t")
		for i, cell := range cells {
			if i == 0 || strings.Contains(cell, " ") {
				cells[i] = c.Text(cell)
			}
		}
		all.WriteString(strings.Join(cells, "\t") + end)
	}
	return all.String()
}

// MarshalJSON is the catalogue for the page: words and page have translations by the English text or format, patterns are pairs of an
// expression and the format for its groups, most text first, and sections are the page and heading by the English heading. In a format the
// parts are "%s" and "%[2]s".
func (c *Catalogue) MarshalJSON() ([]byte, error) {
	patterns := make([][2]string, len(c.patterns))
	for i, p := range c.patterns {
		patterns[i] = [2]string{p.from.String(), p.to}
	}
	return json.Marshal(map[string]any{"words": c.words, "page": c.page, "patterns": patterns, "sections": docs.ChineseSections()})
}
