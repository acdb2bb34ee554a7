package main

import (
	"context"
	"errors"
	"io"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// operator is what can be done with and without a daemon: admin.Client and app.Offline implement it.
type operator interface {
	Checkpoint(ctx context.Context) (admin.Checkpoint, error)
	History(ctx context.Context, limit int) ([]admin.HistoryEntry, error)
	SetCheckpoint(ctx context.Context, target admin.Target) (admin.Preview, error)
	Timeline(ctx context.Context, span admin.Span) (admin.Timeline, error)
	Gaps(ctx context.Context) ([]outbox.Gap, error)
	AckGap(ctx context.Context, id uint64) error
	Pause(ctx context.Context, p outbox.Pause) (*outbox.Pause, error)
	Resume(ctx context.Context) error
	Export(ctx context.Context, w io.Writer) error
	Audit(ctx context.Context, limit int) ([]admin.Change, error)
}

// client returns the way to the running daemon.
func (c *cli) client() (*admin.Client, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	return admin.NewClient(cfg.Checkpoint.Socket()), nil
}

// operate lets f work through the daemon, or on the state directory itself when no daemon runs.
func (c *cli) operate(ctx context.Context, f func(operator) error) error {
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

func (c *cli) operateOffline(cfg *config.Config, f func(operator) error) (err error) {
	state, err := app.OpenOffline(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	return f(state)
}
