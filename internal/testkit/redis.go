package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/canal-outbox/canal-outbox/test/servers"
)

// Redis is a private Redis server without a password. It keeps nothing on the disk: what it held is gone after Kill or Stop.
type Redis struct {
	*Server
	dir   *runDir
	ports *ports
}

// SharedRedis returns the server that all tests of the binary share; they keep apart by key.
func SharedRedis(t T) *Redis {
	t.Helper()
	return sharedServer(t, "redis", StartRedis)
}

// StartRedis starts a new, empty server and returns when it answers. It is installed first if it is missing. The caller closes
// it.
func StartRedis(ctx context.Context) (_ *Redis, err error) {
	cache, err := servers.Cache()
	if err != nil {
		return nil, err
	}
	if err := install(ctx, "redis"); err != nil {
		return nil, err
	}
	program, err := lookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("find redis: %w", err)
	}
	r := &Redis{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.dir, err = newRunDir(filepath.Join(cache, "run"), "redis"); err != nil {
		return nil, err
	}
	if r.ports, err = reservePorts(0); err != nil {
		return nil, err
	}
	r.Server = &Server{
		name: "redis",
		log:  filepath.Join(r.dir.path, "server.log"),
		command: func() *exec.Cmd {
			return exec.Command(program, "--port", strconv.Itoa(r.ports.base), "--bind", "127.0.0.1", "--save", "", "--dir", r.dir.path)
		},
		ready: r.ping,
	}
	return r, r.Start(ctx)
}

// ping speaks the protocol itself: the demo and other packages that link the test kit need no client library for it.
func (r *Redis) ping(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if got := string(answer[:n]); got != "+PONG\r\n" {
		return fmt.Errorf("it answers %q", got)
	}
	return nil
}

// Addr returns host:port. It stays the same over restarts.
func (r *Redis) Addr() string { return loopback(r.ports.base) }

// Close kills the server and removes its directory. Closing twice is harmless.
func (r *Redis) Close() error { return closeServer(r.dir, r.ports, r.Server) }
