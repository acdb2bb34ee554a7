package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// open tells which paths answer without a token: health checks say only whether the service is up, the dashboard is an
// empty page until the API fills it, and the handbook is what everybody can read.
func open(path string) bool {
	return path == "/healthz" || path == "/readyz" || path == "/" || strings.HasPrefix(path, "/assets/") || strings.HasPrefix(path, "/docs/")
}

// guard protects the API over TCP. With a token, whoever has it may. Without one (loopback only) the Host must be a name of
// this machine: a page that rebinds its own host name to 127.0.0.1 sends its own name there.
func guard(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, &Error{Code: CodeForbidden, Message: "this page may not act here: it comes from another origin"})
	}))
	checked := crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case token == "" && !isLoopback(hostName(r.Host)):
			writeError(w, &Error{Code: CodeForbidden, Message: "the Host header must be a loopback address: use http://127.0.0.1"})
			return
		case token != "" && !open(r.URL.Path):
			given, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			// Hashes have one length, so that the comparison tells nothing about the token's.
			got := sha256.Sum256([]byte(given))
			if !found || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				w.Header().Set("WWW-Authenticate", "Bearer")
				writeError(w, &Error{Code: CodeUnauthorized, Message: "a token is needed: send Authorization: Bearer with admin.token"})
				return
			}
		}
		role := "operator token"
		if token == "" {
			role = "a request without a token"
		}
		checked.ServeHTTP(w, withRemote(r, role))
	})
}

// hostName is the Host header without its port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
