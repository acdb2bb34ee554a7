package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// Config says where the server listens.
type Config struct {
	Address string         // host:port; "" for no HTTP
	Token   setting.Secret // of operators, asked of every request over HTTP but health checks; none is possible on loopback only
	Reader  setting.Secret // the token of those who may only read; it may be none
	Socket  string         // path of the unix socket; "" for none
	Peers   []Peer         // other relays that the page shows
}

// Server serves the API. It is made by Listen and works while Run runs.
type Server struct {
	tcp, unix net.Listener
	handler   http.Handler // over TCP
	local     http.Handler // over the socket
	api       *api
	log       *zap.Logger
}

// stopGrace is how long requests may continue after the context of Run has ended.
const stopGrace = 2 * time.Second

// Listen opens the addresses. It fails when one is taken, when another relay answers on the socket, and when an address
// that other machines reach has no token.
func Listen(cfg Config, service Service, metrics prometheus.Gatherer, log *zap.Logger) (*Server, error) {
	s := &Server{log: log, api: newAPI(service, metrics, log)}
	s.api.peers = newPeers(cfg.Peers)
	s.handler = s.api.routes()
	s.local = profiled(s.handler)
	if cfg.Address != "" {
		host, _, err := net.SplitHostPort(cfg.Address)
		if err != nil {
			return nil, fmt.Errorf("admin address %q: %w", cfg.Address, err)
		}
		if !cfg.Token.Set() && !isLoopback(host) {
			return nil, operator.Refusedf("admin address %s can be reached from other machines: set admin.token or listen on 127.0.0.1", cfg.Address)
		}
		if s.tcp, err = net.Listen("tcp", cfg.Address); err != nil {
			return nil, fmt.Errorf("admin address %s: %w (another process uses it, or it is not of this machine)", cfg.Address, err)
		}
		s.handler = guard(tokens{operator: cfg.Token, reader: cfg.Reader}, s.handler)
	}
	if cfg.Socket != "" {
		var err error
		if s.unix, err = listenUnix(cfg.Socket); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Use puts another service in the place of the one given to Listen: requests from now on are answered by it.
func (s *Server) Use(service Service) {
	s.api.current.Store(&service)
	s.api.newest.forget()
}

// Live is the answer of health checks: nil while the service makes progress.
func (s *Server) Live() error { return s.api.service().Live() }

// listenUnix opens the socket for this user alone, replacing one that a killed process left behind.
func listenUnix(path string) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close() // the peer is another relay; an error of this probe has no effect
		return nil, operator.Refusedf("another relay answers on %s: stop it, or give this one a checkpoint.dir of its own", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the socket a former process left: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("directory of the admin socket: %w", err)
	}
	// Linux gives the file the mode that the socket has before it is bound, so that it is never open to others.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var modeErr error
		err := c.Control(func(fd uintptr) { modeErr = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, modeErr)
	}}
	l, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("admin socket: %w", err), l.Close())
	}
	return l, nil
}

// Addr is the HTTP address with the real port, or nil.
func (s *Server) Addr() net.Addr {
	if s.tcp == nil {
		return nil
	}
	return s.tcp.Addr()
}

// Run serves until the context ends, then lets requests finish for two seconds and returns nil. Event streams end at once.
func (s *Server) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	serve := func(l net.Listener, handler http.Handler, who func(context.Context, net.Conn) context.Context) {
		if l == nil {
			return
		}
		h := &http.Server{
			Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
			MaxHeaderBytes: 16 << 10, ErrorLog: zap.NewStdLog(s.log),
			BaseContext: func(net.Listener) context.Context { return running }, ConnContext: who,
		}
		group.Go(func() error {
			if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("admin server on %s: %w", l.Addr(), err)
			}
			return nil
		})
		group.Go(func() error { return stop(running, h) })
	}
	serve(s.tcp, s.handler, nil)
	serve(s.unix, s.local, withPeer)
	return group.Wait()
}

// stop waits for the end of the context and then ends the server.
func stop(running context.Context, h *http.Server) error {
	<-running.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(running), stopGrace)
	defer cancel()
	if err := h.Shutdown(grace); err != nil {
		return h.Close()
	}
	return nil
}

// Close closes the listeners of a server that was never run. Run closes them by itself.
func (s *Server) Close() error {
	var errs []error
	for _, l := range []net.Listener{s.tcp, s.unix} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}
