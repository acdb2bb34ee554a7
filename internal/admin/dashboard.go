package admin

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

//go:embed dashboard.html
var page string

// pagePolicy lets the page run its own script and style, by their hashes, and talk to its own server; nothing else.
var pagePolicy = fmt.Sprintf(
	"default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
	contentHash("<script>", "</script>"), contentHash("<style>", "</style>"))

// contentHash is the CSP source expression of what stands between two marks of the page.
func contentHash(start, end string) string {
	_, rest, _ := strings.Cut(page, start)
	content, _, _ := strings.Cut(rest, end)
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func dashboard(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	_, _ = w.Write([]byte(page)) // a browser that has gone needs no answer
}
