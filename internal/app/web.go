package app

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/systemd"
)

// web is the admin server at work, and systemd's watchdog, which is fed while the server finds the process alive.
type web struct {
	*admin.Server
	stop   context.CancelFunc
	served chan error
	pulse  sync.WaitGroup // the watchdog's
}

// listen starts the admin server.
func listen(cfg *config.Config, service admin.Service, registry *prometheus.Registry, log *zap.Logger) (*web, error) {
	peers := make([]admin.Peer, 0, len(cfg.Admin.Peers))
	for _, p := range cfg.Admin.Peers {
		peers = append(peers, admin.Peer{URL: p.URL, Token: p.Token})
	}
	server, err := admin.Listen(admin.Config{
		Address: cfg.Admin.Listen, Token: cfg.Admin.Token, Reader: cfg.Admin.ReadToken, Socket: cfg.Checkpoint.Socket(), Peers: peers,
	}, service, registry, log.Named("admin"))
	if err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(context.Background()) // beyond the end of the relay, until close
	w := &web{Server: server, stop: stop, served: make(chan error, 1)}
	go func() { w.served <- server.Run(serving) }()
	w.pulse.Go(func() { systemd.Watch(serving, server.Live, log.Named("systemd")) })
	return w, nil
}

// close ends the server and waits for its end.
func (w *web) close() error {
	w.stop()
	w.pulse.Wait()
	return <-w.served
}
