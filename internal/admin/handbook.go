package admin

import (
	"bytes"
	"cmp"
	"html/template"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"github.com/canal-outbox/canal-outbox/docs"
)

// handbook serves the documentation that this version came with, because who is on call may have no way out to the internet.
// Pages are rendered when they are asked for the first time.
func handbook() http.HandlerFunc {
	var pages sync.Map // name to []byte
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.PathValue("page"), ".txt") { // a list of docs/contract
			http.ServeFileFS(w, r, docs.Pages, r.PathValue("page"))
			return
		}
		name := cmp.Or(strings.TrimSuffix(r.PathValue("page"), ".md"), "README")
		page, known := pages.Load(name)
		if !known {
			text, err := docs.Pages.ReadFile(name + ".md")
			if err != nil {
				http.Error(w, "There is no such page in this binary: it holds docs/*.md; docs/ lists them.", http.StatusNotFound)
				return
			}
			rendered, err := renderPage(text, strings.Repeat("../", 1+strings.Count(r.PathValue("page"), "/")))
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			page, _ = pages.LoadOrStore(name, rendered)
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", pagePolicy)
		_, _ = w.Write(page.([]byte)) // a browser that has gone needs no answer
	}
}

var markdown = goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// anchors makes the anchors of headings as links name them, in any language: those of goldmark have no letters but ASCII.
type anchors map[string]int

func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	anchor := docs.Anchor(string(heading))
	a[anchor]++
	if n := a[anchor]; n > 1 {
		anchor += "-" + strconv.Itoa(n-1)
	}
	return []byte(anchor)
}

// Put is for anchors that a page gives itself; ours give none.
func (a anchors) Put(anchor []byte) { a[string(anchor)]++ }

// documentFrame is what surrounds a page of the handbook. Root leads from the page to the dashboard.
var documentFrame = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}} - canal-outbox</title><link rel="icon" href="{{.Root}}assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{{.Root}}assets/page.css"><link rel="stylesheet" href="{{.Root}}assets/parts.css"></head>
<body><header class="top"><div class="bar"><img src="{{.Root}}assets/icon.svg" alt="" width="28" height="28"><strong>canal-outbox</strong>
<nav aria-label="Views"><a href="{{.Root}}">Dashboard</a><a href="{{.Root}}docs/">Handbook</a><a href="{{.Root}}docs/operations">Operations</a><a href="{{.Root}}docs/runbooks/README">Runbooks</a><a href="{{.Root}}docs/concepts">Concepts</a><a href="{{.Root}}docs/configuration">Configuration</a></nav>
</div></header><main><article class="card doc">{{.Body}}</article></main></body></html>
`))

// picture is a line with an image. Those of the dashboard are not in the binary: who reads this has the dashboard itself.
var picture = regexp.MustCompile(`(?m)^!\[[^\]]*\]\([^)]*\)\n`)

func renderPage(text []byte, root string) ([]byte, error) {
	text = picture.ReplaceAll(text, nil)
	var body, page bytes.Buffer
	if err := markdown.Convert(text, &body, parser.WithContext(parser.NewContext(parser.WithIDs(anchors{})))); err != nil {
		return nil, err
	}
	title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
	err := documentFrame.Execute(&page, map[string]any{"Title": title, "Root": root, "Body": template.HTML(body.String())}) //nolint:gosec // our own pages, embedded
	return page.Bytes(), err
}
