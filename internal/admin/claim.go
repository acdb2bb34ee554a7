package admin

import (
	"context"
	"net"
	"net/http"
	"net/url"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// withPeer gives every request over the socket the name of the user at its other end.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	if uid, ok := peer(conn); ok {
		return operator.WithCaller(ctx, operator.UserName(uid))
	}
	return ctx
}

// claimHeader carries the text of a Claim, escaped as in a query.
const claimHeader = "Canal-Outbox-By"

// claim sets the header of a request to what its context claims.
func claim(r *http.Request) {
	if c := operator.ClaimOf(r.Context()); c.String() != "" {
		r.Header.Set(claimHeader, url.QueryEscape(c.String()))
	}
}

// claimed adds the claim of a request to the name of its caller.
func claimed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := url.QueryUnescape(r.Header.Get(claimHeader))
		if err == nil {
			err = operator.CheckClaim(text)
		}
		if err != nil {
			writeError(w, operator.Usagef("the header %s cannot be read: %v", claimHeader, err))
			return
		}
		next.ServeHTTP(w, r.WithContext(operator.AddClaim(r.Context(), text)))
	})
}
