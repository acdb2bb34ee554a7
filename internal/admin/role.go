package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// role is what a request may do. Each includes the ones before it.
type role int

const (
	everyone     role = iota // without a token: whether the service is up, and the empty page
	reader                   // may see everything but the bodies of messages
	operatorRole             // may see bodies, and change things
)

func (r role) String() string { return [...]string{"everyone", "reader", "operator"}[r] }

type roleKey struct{}

// roleOf is the role of a request. One that no guard has looked at came over the socket, whose file mode guards it.
func roleOf(ctx context.Context) role {
	if r, ok := ctx.Value(roleKey{}).(role); ok {
		return r
	}
	return operatorRole
}

// Me says what a request may do, so that a page offers nothing that would be refused.
type Me struct {
	Role string `json:"role"` // reader or operator
	Who  string `json:"who"`  // as the list of changes names who made this request
}

func me(r *http.Request) (any, error) {
	return Me{Role: roleOf(r.Context()).String(), Who: operator.Caller(r.Context())}, nil
}

// tokens know the roles of requests over HTTP.
type tokens struct{ operator, reader setting.Secret }

// roleOf compares hashes of equal length, so that the time it takes reveals nothing about the length of the token. Without a
// token every request that the guard lets through has the role of an operator: it comes from this machine.
func (t tokens) roleOf(r *http.Request) (is role, who string) {
	given, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got := sha256.Sum256([]byte(given))
	same := func(token setting.Secret) bool {
		text := token.Get()
		want := sha256.Sum256([]byte(text))
		return found && text != "" && subtle.ConstantTimeCompare(got[:], want[:]) == 1
	}
	switch mayAct, maySee := same(t.operator), same(t.reader); {
	case !t.operator.Set():
		return operatorRole, "a request without a token"
	case maySee: // before the other: when both files have the same token it gives the lesser right
		return reader, "read-only token"
	case mayAct:
		return operatorRole, "operator token"
	}
	return everyone, "a request without a token"
}

// allow refuses a request whose role is not enough.
func allow(r *http.Request, needs role) error {
	switch is := roleOf(r.Context()); {
	case is >= needs:
		return nil
	case is == everyone:
		return &operator.Error{Code: operator.CodeUnauthorized, Message: "a token is needed: send Authorization: Bearer with admin.token, or with admin.read_token to read only"}
	}
	return &operator.Error{Code: operator.CodeForbidden, Message: "the read-only token does not reach that far: send admin.token"}
}
