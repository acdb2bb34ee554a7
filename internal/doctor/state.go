package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// littleSpace is where a warning begins. The store itself stays within some megabytes; other files may fill the disk.
const littleSpace = 1 << 30

// files checks the files that the configuration names.
func (d *doctor) files() {
	for _, fault := range d.cfg.MissingFiles() {
		d.add(server.Fault, fault.Path, "correct the path, or make the file readable for the user that runs canal-outbox", "%s: %s", fault.Value, fault.Reason)
	}
}

// state checks the directory: its disk, its user, whether it can be used, and the server of its position.
func (d *doctor) state(ctx context.Context) {
	const subject = "checkpoint.dir"
	dir := d.cfg.Checkpoint.Dir
	d.space(dir)
	asked, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if at, err := d.Running(asked); err == nil {
		d.running, d.held.Checkpoint = true, at
		d.add(server.OK, subject, "", "a relay is running on it, at %s", at)
		return
	}
	if !d.writable(dir) {
		return
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		d.add(server.OK, subject, "", "%s does not exist yet; the first start creates it, and sweeps the tables once", dir)
		return
	}
	held, err := d.State()
	d.held = held
	switch {
	case err != nil:
		d.add(server.Fault, subject, "", "%v", err)
	case held.InUse:
		d.running = true
		d.add(server.Warning, subject, "stop the other process, or give this one a directory of its own",
			"%s is in use by another canal-outbox, which does not answer on %s", dir, d.cfg.Checkpoint.Socket())
	default:
		d.add(server.OK, subject, "", "%s can be used", dir)
	}
}

// writable checks whether this user may write the directory, or create it in the nearest existing one above.
func (d *doctor) writable(dir string) bool {
	const subject = "checkpoint.dir"
	at := filepath.Clean(dir)
	info, err := os.Stat(at)
	for (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	const write, search = 2, 1 // W_OK, X_OK
	switch {
	case err == nil && !info.IsDir():
		err = syscall.ENOTDIR
	case err == nil:
		err = syscall.Access(at, write|search)
	}
	if err == nil {
		return true
	}
	if at == filepath.Clean(dir) {
		d.add(server.Fault, subject, "as the administrator: chown -R the directory to the user that runs canal-outbox", "this user (uid %d) cannot write %s: %v", os.Getuid(), dir, err)
	} else {
		d.add(server.Fault, subject, "as the administrator: install -d -m 700 -o USER "+dir+" (USER runs canal-outbox)",
			"%s does not exist, and this user (uid %d) cannot create it in %s: %v", dir, os.Getuid(), at, err)
	}
	return false
}

func (d *doctor) space(dir string) {
	free, err := d.Free(dir)
	switch {
	case err != nil:
		d.add(server.Warning, "disk", "", "the free space of %s cannot be read: %v", dir, err)
	case free < d.MinFree:
		d.add(server.Fault, "disk", "make room on the file system of "+dir, "%.1f MiB are free there, a start needs %d MiB, and a running relay ends when it cannot write its state",
			float64(free)/(1<<20), d.MinFree>>20)
	case free < littleSpace:
		d.add(server.Warning, "disk", "make room on the file system of "+dir, "%d MiB are free there: with less than %d MiB the relay does not start", free>>20, d.MinFree>>20)
	default:
		d.add(server.OK, "disk", "", "%d GiB are free", free>>30)
	}
}

// port checks whether the admin server can listen. A running relay has the port.
func (d *doctor) port() {
	address := d.cfg.Admin.Listen
	if d.running || address == "" {
		return
	}
	listener, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		d.add(server.Fault, "admin.listen", "stop the other program (ss -ltnp shows it), or set admin.listen to a free port", "another program listens on %s", address)
	case err != nil:
		d.add(server.Fault, "admin.listen", "set admin.listen to an address of this machine and a port that this user may use", "%v", err)
	default:
		if err := listener.Close(); err != nil {
			d.add(server.Warning, "admin.listen", "", "%v", err)
		}
	}
}

// alerts reports where failures are sent. The webhook is not called: a receiver takes every call for an alert.
func (d *doctor) alerts() {
	a := d.cfg.Alerts
	switch {
	case a.Webhook == "":
	case !a.Secret.Set():
		d.add(server.OK, "alerts.webhook", "", "failures are reported to %s, not signed (alerts.secret); it was not called", a.Webhook)
	default:
		d.add(server.OK, "alerts.webhook", "", "failures are reported to %s, signed; it was not called", a.Webhook)
	}
}
