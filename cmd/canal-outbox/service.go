package main

import (
	"context"
	"errors"
	"io"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// client returns a client of the running relay.
func (c *cli) client() (*admin.Client, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	return admin.NewClient(cfg.Checkpoint.Socket()), nil
}

// operate calls f with the running relay, or with its state directory and the database when no relay runs. f is called again when the relay
// ends in the middle.
func (c *cli) operate(ctx context.Context, f func(operator.Service) error) error {
	return c.operateOn(ctx, true, f)
}

// withMessages is operate for f that needs no state directory.
func (c *cli) withMessages(ctx context.Context, f func(operator.Service) error) error {
	return c.operateOn(ctx, false, f)
}

func (c *cli) operateOn(ctx context.Context, needsState bool, f func(operator.Service) error) (err error) {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if err := f(admin.NewClient(cfg.Checkpoint.Socket())); !errors.Is(err, admin.ErrNoDaemon) {
		return err
	}
	offline, err := app.OpenOffline(ctx, cfg, needsState)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, offline.Close()) }()
	return f(offline)
}

// answer gets a value from the running relay, or as operateOn does, and shows it.
func answer[T any](ctx context.Context, c *cli, needsState bool, get func(operator.Service) (T, error), write func(io.Writer, T)) error {
	return c.operateOn(ctx, needsState, func(o operator.Service) error {
		value, err := get(o)
		if err != nil {
			return err
		}
		return c.show(value, func(w io.Writer) { write(w, value) })
	})
}
