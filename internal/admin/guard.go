package admin

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// guard gives every request over TCP its role; the routes say which they need. Without a token (loopback only) the Host must be a name
// of this machine: a page that rebinds its own host name to 127.0.0.1 sends its own name there.
func guard(known tokens, next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, &operator.Error{Code: operator.CodeForbidden, Message: "this page may not act here: it comes from another origin"})
	}))
	checked := crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known.operator.Set() && !isLoopback(hostName(r.Host)) {
			writeError(w, &operator.Error{Code: operator.CodeForbidden, Message: "the Host header must be a loopback address: use http://127.0.0.1"})
			return
		}
		is, who := known.roleOf(r)
		ctx := operator.WithCaller(context.WithValue(r.Context(), roleKey{}, is), who+" from "+hostName(r.RemoteAddr))
		checked.ServeHTTP(w, r.WithContext(ctx))
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
