package admin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/canal-outbox/canal-outbox/internal/translate"
)

// The page is files that the browser asks for: one HTML, style sheets and script modules, and the charting library uPlot as its
// authors ship it, with its licence.
//
//go:embed page
var embedded embed.FS

// pagePolicy lets the page run the scripts and styles of this server, and talk to it; nothing inline, nothing from elsewhere.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// asset is one file of the page.
type asset struct {
	kind    string // its Content-Type
	tag     string // its ETag: a browser asks whether it has changed, and mostly it has not
	content []byte
}

// kinds are the Content-Types by the end of a name; those of the machine's own table may be anything.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".json": "application/json", ".LICENSE": "text/plain; charset=utf-8",
}

// assets are the files of the page by their names.
var assets = func() map[string]asset {
	files, err := fs.ReadDir(embedded, "page")
	if err != nil {
		panic(err) // the binary was built without its page
	}
	all := map[string]asset{}
	for _, f := range files {
		content, err := embedded.ReadFile("page/" + f.Name())
		if err != nil {
			panic(err)
		}
		all[f.Name()] = assetOf(f.Name(), content)
	}
	return all
}()

// catalogue is the page's catalogue for Chinese, which is a part of no file of the page.
var catalogue = sync.OnceValues(func() (asset, error) {
	content, err := json.Marshal(translate.Chinese())
	return assetOf("zh.json", content), err
})

func assetOf(name string, content []byte) asset {
	sum := sha256.Sum256(content)
	return asset{kind: kinds[path.Ext(name)], tag: `"` + hex.EncodeToString(sum[:8]) + `"`, content: content}
}

func dashboard(w http.ResponseWriter, r *http.Request) { assets["index.html"].serve(w, r) }

// pageFile serves one of the page's files.
func pageFile(w http.ResponseWriter, r *http.Request) {
	a, known := assets[r.PathValue("file")]
	if r.PathValue("file") == "zh.json" {
		var err error
		if a, err = catalogue(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		known = true
	}
	if !known {
		http.NotFound(w, r)
		return
	}
	a.serve(w, r)
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.tag)
	if strings.Contains(r.Header.Get("If-None-Match"), a.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(a.content) // a browser that has gone needs no answer
}
