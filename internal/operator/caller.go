package operator

import (
	"context"
	"os"
	"os/user"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// callerKey is the context key of the caller's name, claimKey that of a Claim.
type (
	callerKey struct{}
	claimKey  struct{}
)

// WithCaller returns a context that carries the caller's name.
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// Caller is the caller for people: a user of this machine, or the role of its token and its address; then what its Claim adds.
func Caller(ctx context.Context) string {
	if name, ok := ctx.Value(callerKey{}).(string); ok {
		return name
	}
	return "unknown"
}

// UserName names a user of this machine by its number.
func UserName(uid int) string {
	return "unix user " + userName(strconv.Itoa(uid))
}

func userName(number string) string {
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}

// Claim is what a command says about the person that runs it. The relay records it next to what it finds out by itself, and cannot check it.
type Claim struct {
	Login string // the user that logged in, where that is not the user of the process
	From  string // the address that the login came from
	By    string // what --by says
}

// LoginClaim finds out which user logged in: by the kernel's login uid, which sudo and su keep, else by SUDO_USER; and where from, by
// SSH_CONNECTION.
func LoginClaim(uid int, getenv func(string) string) Claim {
	own, login := userName(strconv.Itoa(uid)), getenv("SUDO_USER")
	if data, err := os.ReadFile("/proc/self/loginuid"); err == nil {
		if number := strings.TrimSpace(string(data)); number != "4294967295" && number != "" { // it is set
			login = userName(number)
		}
	}
	from, _, _ := strings.Cut(getenv("SSH_CONNECTION"), " ")
	if login == own {
		login = ""
	}
	return Claim{Login: login, From: from}
}

// maxClaim bounds a claim, in bytes: it is kept, and shown on one line.
const maxClaim = 200

// Check returns a usage error unless the claim is one line of a bounded length.
func (c Claim) Check() error { return CheckClaim(c.String()) }

// CheckClaim returns a usage error unless the text of a claim is one line of a bounded length.
func CheckClaim(text string) error {
	if len(text) > maxClaim || strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text) {
		return Usagef("the name of the person (--by) must be one line, with the login at most %d bytes", maxClaim)
	}
	return nil
}

// String is the claim for people; "" when there is none.
func (c Claim) String() string {
	var parts []string
	switch {
	case c.Login != "" && c.From != "":
		parts = append(parts, "login "+c.Login+" from "+c.From)
	case c.Login != "":
		parts = append(parts, "login "+c.Login)
	case c.From != "":
		parts = append(parts, "login from "+c.From)
	}
	if c.By != "" {
		parts = append(parts, "by "+c.By)
	}
	return strings.Join(parts, ", ")
}

// WithClaim returns a context whose caller is a user of this machine with a claim. A Client sends the claim along.
func WithClaim(ctx context.Context, uid int, c Claim) context.Context {
	return AddClaim(context.WithValue(WithCaller(ctx, UserName(uid)), claimKey{}, c), c.String())
}

// ClaimOf returns the claim that WithClaim put into a context, empty when there is none.
func ClaimOf(ctx context.Context) Claim {
	c, _ := ctx.Value(claimKey{}).(Claim)
	return c
}

// AddClaim returns a context whose caller has the text of a claim added.
func AddClaim(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	return WithCaller(ctx, Caller(ctx)+", "+text)
}
