package main

import (
	"context"
	"errors"
	"io"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// service is what the commands need from a running relay or from its state directory alone: admin.Client and app.Offline
// implement it.
type service interface {
	Checkpoint(ctx context.Context) (operator.Checkpoint, error)
	History(ctx context.Context, limit int) ([]operator.HistoryEntry, error)
	SetCheckpoint(ctx context.Context, target operator.Target) (operator.Preview, error)
	Timeline(ctx context.Context, span operator.Span) (operator.Timeline, error)
	Gaps(ctx context.Context) ([]outbox.Gap, error)
	AckGap(ctx context.Context, id uint64) error
	Pause(ctx context.Context, p outbox.Pause) (*outbox.Pause, error)
	Resume(ctx context.Context) error
	Export(ctx context.Context, w io.Writer) error
	Audit(ctx context.Context, limit int) ([]operator.Change, error)
}

// client returns a client of the running relay.
func (c *cli) client() (*admin.Client, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	return admin.NewClient(cfg.Checkpoint.Socket()), nil
}

// operate calls f with the running relay, or with the state directory itself when no relay runs.
func (c *cli) operate(ctx context.Context, f func(service) error) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	client := admin.NewClient(cfg.Checkpoint.Socket())
	switch _, err := client.Checkpoint(ctx); {
	case err == nil:
		return f(client)
	case errors.Is(err, admin.ErrNoDaemon):
		return c.operateOffline(cfg, f)
	default:
		return err
	}
}

func (c *cli) operateOffline(cfg *config.Config, f func(service) error) (err error) {
	state, err := app.OpenOffline(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	return f(state)
}
