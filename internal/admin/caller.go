package admin

import (
	"context"
	"net"
	"os/user"
	"strconv"
)

// callerKey is the context key of the name of who asks.
type callerKey struct{}

// WithCaller returns a context that carries the name of who asks.
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// Caller is who asks, for people: a user of this machine, or what its request over HTTP has shown.
func Caller(ctx context.Context) string {
	if name, ok := ctx.Value(callerKey{}).(string); ok {
		return name
	}
	return "unknown"
}

// UserName names a user of this machine by its number.
func UserName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return "unix user " + u.Username
	}
	return "unix user " + number
}

// withPeer gives every request over the socket the name of the user at its other end.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	if uid, ok := peer(conn); ok {
		return WithCaller(ctx, UserName(uid))
	}
	return ctx
}
