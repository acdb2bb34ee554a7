package app

import (
	"context"
	"errors"
	"os"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// The disk space below which the state directory is in danger. The store itself stays within some megabytes.
const (
	littleSpace = 1 << 30
	noSpace     = 64 << 20
)

// state checks the directory: who has it, whether it can be used, and whose position it holds.
func (d *doctor) state(ctx context.Context) {
	const subject = "checkpoint.dir"
	dir := d.cfg.Checkpoint.Dir
	cp, err := admin.NewClient(d.cfg.Checkpoint.Socket()).Checkpoint(ctx)
	if err == nil {
		d.running = true
		d.add(server.OK, subject, "", "a daemon is running on it, at %s", cp.Position)
		return
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		d.add(server.OK, subject, "", "%s does not exist yet; the first start makes it, and sweeps the tables once", dir)
		return
	}
	if !d.writable(dir) {
		return
	}
	d.space(dir)
	state, err := checkpoint.Open(dir, checkpoint.Options{OnFatal: func(error) {}})
	switch {
	case errors.Is(err, checkpoint.ErrLocked):
		d.running = true
		d.add(server.Warning, subject, "", "%v", err)
		return
	case err != nil:
		d.add(server.Fault, subject, "", "%v", err)
		return
	}
	d.recorded, _ = state.Source()
	d.checkpoint, _ = state.Checkpoint()
	if err := state.Close(); err != nil {
		d.add(server.Fault, subject, "", "%v", err)
		return
	}
	d.add(server.OK, subject, "", "%s can be used", dir)
}

// writable tries to make a file beside the store, not in it.
func (d *doctor) writable(dir string) bool {
	probe, err := os.CreateTemp(dir, ".doctor-")
	if err == nil {
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if err != nil {
		d.add(server.Fault, "checkpoint.dir", "chown the directory to the user that runs canal-outbox", "it cannot be written: %v", err)
	}
	return err == nil
}

func (d *doctor) space(dir string) {
	free, err := freeBytes(dir)
	switch {
	case err != nil:
		d.add(server.Warning, "disk", "", "its free space cannot be read: %v", err)
	case free < noSpace:
		d.add(server.Fault, "disk", "make room", "%d MiB are free under %s: the daemon stops when it cannot write its state", free>>20, dir)
	case free < littleSpace:
		d.add(server.Warning, "disk", "make room", "%d MiB are free under %s", free>>20, dir)
	default:
		d.add(server.OK, "disk", "", "%d GiB are free", free>>30)
	}
}
