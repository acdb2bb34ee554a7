package admin

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/docs"
	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// The page works where there is no internet, runs nothing inline, and makes no HTML of what it receives.
func TestThePageNeedsNothingElse(t *testing.T) {
	own := 0
	for name, a := range assets {
		if strings.HasPrefix(name, "uplot.") || name == "icon.svg" {
			continue
		}
		own++
		content := string(a.content)
		for _, foreign := range []string{"http://", "https://", "@import", "url(", "innerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=", "onclick=\"", "<style", "TODO"} {
			if strings.Contains(content, foreign) {
				t.Errorf("%s holds %q", name, foreign)
			}
		}
		if lines := strings.Count(content, "\n"); lines > 400 {
			t.Errorf("%s has %d lines: where would a newcomer cut it?", name, lines)
		}
		for _, asked := range regexp.MustCompile(`(?:src|href)="assets/([^"]+)"|from "\./([^"]+)"`).FindAllStringSubmatch(content, -1) {
			if _, known := assets[asked[1]+asked[2]]; !known {
				t.Errorf("%s asks for %s, which is not there", name, asked[0])
			}
		}
	}
	if own < 8 {
		t.Errorf("only %d files were seen", own)
	}
}

func TestThePageIsServed(t *testing.T) {
	url := serve(t, Config{Address: "127.0.0.1:0", Token: setting.NewSecret("a-long-enough-token")}, &fake{})
	for name, a := range assets {
		got := ask(t, "GET", url+"/assets/"+name, "", "Host", "relay.example")
		if got.status != 200 || got.body != string(a.content) || got.header.Get("Content-Type") == "" || strings.Contains(got.header.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s: %d %v", name, got.status, got.header)
		}
		if again := ask(t, "GET", url+"/assets/"+name, "", "Host", "relay.example", "If-None-Match", got.header.Get("ETag")); again.status != 304 || again.body != "" {
			t.Errorf("%s again: %d", name, again.status)
		}
	}
	for _, path := range []string{"/assets/", "/assets/nothing.js", "/assets/../dashboard.go", "/docs/nothing", "/docs/..%2f..%2fgo", "/docs/pages.go"} {
		if got := ask(t, "GET", url+path, "", "Host", "relay.example"); got.status == 200 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
}

// Whatever the page links to in the handbook is there.
func TestThePageLinksToTheHandbook(t *testing.T) {
	links := 0
	for name, a := range assets {
		for _, found := range regexp.MustCompile(`handbook\("([^"]+)", "([^"]+)"\)|["`+"`"+`]docs/([a-z/-]+)(#?)`).FindAllStringSubmatch(string(a.content), -1) {
			section, page := found[2], found[3]
			if name == "dom.js" || strings.HasPrefix(name, "uplot.") {
				continue // which make the links
			}
			if links++; page != "" {
				if _, err := docs.Pages.ReadFile(page + ".md"); err != nil || found[4] != "" {
					t.Errorf("%s links to docs/%s: %v", name, page, err)
				}
			} else if want := "docs/operations/" + found[1] + ".md, " + section; docs.Section(section) != want {
				t.Errorf("%s links to %s, which is not there", name, want)
			}
		}
	}
	if links < 5 {
		t.Errorf("only %d links were seen", links)
	}
}

// Every page of the handbook can be read, and every heading has the anchor that links on GitHub and in alerts use.
func TestTheHandbookIsServed(t *testing.T) {
	url := serve(t, Config{Address: "127.0.0.1:0", Token: setting.NewSecret("a-long-enough-token")}, &fake{})
	pages, err := fs.Glob(docs.Pages, "*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%v, %v", pages, err)
	}
	for _, name := range append(pages, "", "layouts/README.md", "runbooks/README.md", "runbooks/upgrade.md", "operations/broker.md") {
		if got := ask(t, "GET", url+"/docs/"+name, ""); got.status != 200 || !strings.Contains(got.body, "</h1>") || strings.Contains(got.body, `<img src="images`) {
			t.Errorf("%s: %d", name, got.status)
		}
	}
	text, err := docs.Pages.ReadFile("operations.md")
	must(t, err)
	anchors := regexp.MustCompile(`\]\((operations/[a-z]+\.md)#([a-z0-9-]+)\)`).FindAllStringSubmatch(string(text), -1)
	for _, a := range anchors {
		if page := ask(t, "GET", url+"/docs/"+a[1], ""); !strings.Contains(page.body, `id="`+a[2]+`"`) {
			t.Errorf("no section of %s has the anchor %s", a[1], a[2])
		}
	}
	if len(anchors) < 20 {
		t.Errorf("only %d links were seen", len(anchors))
	}
}
