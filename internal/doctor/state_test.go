package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

const mib = 1 << 20

// made is a doctor for a state directory with enough room and no faults.
func made(dir string) *doctor {
	cfg := config.Default()
	cfg.Checkpoint.Dir, cfg.Admin.Listen = dir, ""
	return &doctor{cfg: &cfg, Parts: Parts{
		Running: func(context.Context) (outbox.Position, error) {
			return outbox.Position{}, errors.New("no relay answers")
		},
		Config: &cfg, MinFree: 12 * mib,
		State: func() (State, error) { return State{}, nil },
		Free:  func(string) (uint64, error) { return 1 << 40, nil },
	}}
}

// found expects one finding that is not OK, with these words.
func found(t *testing.T, d *doctor, severity server.Severity, words ...string) {
	t.Helper()
	var bad []server.Finding
	for _, f := range d.findings {
		if f.Severity != server.OK {
			bad = append(bad, f)
		}
	}
	if len(bad) != 1 || bad[0].Severity != severity {
		t.Fatalf("want one %s, got %+v", severity, d.findings)
	}
	text := bad[0].Subject + ": " + bad[0].What + " | " + bad[0].Fix
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in: %s", word, text)
		}
	}
}

func TestStateDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir   string
		harm  func(*doctor)
		want  server.Severity
		words []string
	}{
		"no room":        {t.TempDir(), func(d *doctor) { d.Free = func(string) (uint64, error) { return 5 * mib / 2, nil } }, server.Fault, []string{"disk", "2.5 MiB are free", "needs 12 MiB", "make room"}},
		"little room":    {t.TempDir(), func(d *doctor) { d.Free = func(string) (uint64, error) { return 100 * mib, nil } }, server.Warning, []string{"100 MiB are free", "12 MiB"}},
		"cannot be made": {filepath.Join(file, "state"), func(*doctor) {}, server.Fault, []string{"cannot create it in " + file, "install -d", filepath.Join(file, "state")}},
		"no directory":   {file, func(*doctor) {}, server.Fault, []string{"cannot write", "not a directory"}},
		"in use":         {t.TempDir(), func(d *doctor) { d.State = func() (State, error) { return State{InUse: true}, nil } }, server.Warning, []string{"in use by another", "stop the other"}},
		"damaged":        {t.TempDir(), func(d *doctor) { d.State = func() (State, error) { return State{}, errors.New("it is damaged") } }, server.Fault, []string{"it is damaged"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := made(c.dir)
			c.harm(d)
			d.state(t.Context())
			found(t, d, c.want, c.words...)
		})
	}
	missing := filepath.Join(t.TempDir(), "a", "state")
	d := made(missing)
	d.state(t.Context())
	if server.HasFault(d.findings) || !strings.Contains(d.findings[1].What, "does not exist yet") {
		t.Errorf("a directory that can be made: %+v", d.findings)
	}
	if _, err := os.Stat(filepath.Dir(missing)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}

func TestAdminPortTaken(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := made(t.TempDir())
	d.cfg.Admin.Listen = other.Addr().String()
	d.port()
	found(t, d, server.Fault, "admin.listen", "another program listens on "+other.Addr().String(), "set admin.listen to a free port")
	d.findings, d.running = nil, true // then it is the relay's own
	if d.port(); d.findings != nil {
		t.Errorf("next to a relay: %+v", d.findings)
	}
	d.running = false
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if d.port(); d.findings != nil {
		t.Errorf("a free port: %+v", d.findings)
	}
}

func TestFilesOfTLS(t *testing.T) {
	d := made(t.TempDir())
	d.cfg.Source.TLS = setting.TLS{Mode: "verify-ca", CA: setting.NewFile("/nonexistent/ca.pem")}
	d.files()
	found(t, d, server.Fault, "source.tls.ca", "/nonexistent/ca.pem", "no such file", "correct the path")
}
