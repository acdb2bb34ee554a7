package docs_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/docs"
)

var (
	// origin is the comment before a Chinese section: the English page, the anchor of its heading, and the hash of its text.
	origin = regexp.MustCompile(`<!-- from (\S+\.md)#(\S+)(?: ([0-9a-f]{8}))? -->`)
	block  = regexp.MustCompile("(?ms)^ *```[a-z]*\n.*?^ *```$")
)

// part is one heading of a page with the text below it, up to the next heading of any level.
type part struct{ anchor, text string }

// split cuts a page at its headings. Lines of code that begin with # are no headings.
func split(page string) []part {
	var all []part
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if h := heading.FindStringSubmatch(strings.TrimRight(line, "\n")); h != nil && !code {
			anchor := docs.Anchor(h[1])
			all = append(all, part{anchor: anchor})
		}
		if len(all) > 0 {
			all[len(all)-1].text += line
		}
	}
	return all
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(text)))
	return hex.EncodeToString(sum[:4])
}

// blocks are the code blocks of a text without their indentation by a list.
func blocks(text string) []string {
	all := block.FindAllString(text, -1)
	for i, b := range all {
		lines := strings.Split(b, "\n")
		indent := len(lines[0]) - len(strings.TrimLeft(lines[0], " "))
		for j, l := range lines {
			lines[j] = l[min(indent, len(l)-len(strings.TrimLeft(l, " "))):]
		}
		all[i] = strings.Join(lines, "\n")
	}
	return all
}

// Every Chinese section names the English one that it was written from and the hash that this had then. A page that has the title of an
// English page has all its sections. Code is the same in both languages. TestLinks checks the links.
func TestChinese(t *testing.T) {
	pages, err := filepath.Glob("zh/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../README.zh.md")
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		after, n := compare(t, page, string(text))
		checked += n
		if *update && after != string(text) {
			if err := os.WriteFile(page, []byte(after), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d Chinese sections were compared", checked)
	}
}

// compare reports what differs between a Chinese page and its English sections. It returns the page with new hashes and the number of sections.
func compare(t *testing.T, page, text string) (string, int) {
	found := origin.FindAllStringSubmatchIndex(text, -1)
	named, after, done := map[string][]string{}, strings.Builder{}, 0
	for i, at := range found {
		name, anchor, have := text[at[2]:at[3]], text[at[4]:at[5]], ""
		if at[6] >= 0 {
			have = text[at[6]:at[7]]
		}
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		after.WriteString(text[done:at[0]])
		done = at[1]
		english, known := sectionOf(t, name, anchor)
		if !known {
			t.Errorf("%s: %s has no heading %s: was it renamed?", page, name, anchor)
			after.WriteString(text[at[0]:at[1]])
			continue
		}
		after.WriteString("<!-- from " + name + "#" + anchor + " " + hash(english) + " -->")
		named[name] = append(named[name], anchor)
		if have != hash(english) && !*update {
			t.Errorf("%s: %s#%s has changed: adapt the Chinese section, then run go test ./docs -run TestChinese -update", page, name, anchor)
		}
		if e, c := blocks(english), blocks(text[at[1]:end]); !slices.Equal(e, c) {
			t.Errorf("%s: the code of %s#%s differs:\nEnglish %q\nChinese %q", page, name, anchor, e, c)
		}
	}
	after.WriteString(text[done:])
	for name, anchors := range named {
		all := sectionsOf(t, name)
		if !slices.Contains(anchors, all[0].anchor) {
			continue // some sections of a page
		}
		for _, s := range all {
			if !slices.Contains(anchors, s.anchor) {
				t.Errorf("%s lacks the section %s of %s", page, s.anchor, name)
			}
		}
	}
	return after.String(), len(found)
}

func sectionsOf(t *testing.T, name string) []part {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return split(string(text))
}

func sectionOf(t *testing.T, name, anchor string) (string, bool) {
	t.Helper()
	all := sectionsOf(t, name)
	i := slices.IndexFunc(all, func(s part) bool { return s.anchor == anchor })
	if i < 0 {
		return "", false
	}
	return all[i].text, true
}
