package systemd

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is the other end of the socket.
func manager(t *testing.T) func() string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 100)
		n, err := conn.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(text[:n])
	}
}

func TestWatch(t *testing.T) {
	heard := manager(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	core, logs := observer.New(zap.InfoLevel)
	var stuck atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	ended, asked := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(ended)
		Watch(ctx, func() error {
			if stuck.Load() {
				select {
				case asked <- struct{}{}:
				default:
				}
				return errors.New("no progress")
			}
			return nil
		}, zap.New(core))
	}()
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if got := heard(); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	stuck.Store(true)
	<-asked
	<-asked
	stuck.Store(false)
	heard() // alive again, or still one from before
	cancel()
	<-ended
	if n := logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
		t.Errorf("%d errors in the log, want one for the whole time without progress", n)
	}
	for err := Stopping(); ; {
		if err != nil {
			t.Fatal(err)
		}
		if heard() == "STOPPING=1" {
			return
		}
	}
}

// Without systemd nothing is said and nothing is logged.
func TestWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	core, logs := observer.New(zap.InfoLevel)
	Watch(t.Context(), func() error { return errors.New("never asked") }, zap.New(core))
	if err := Stopping(); err != nil || logs.Len() > 0 {
		t.Errorf("%v, %d lines", err, logs.Len())
	}
}

func TestNobodyListens(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	core, logs := observer.New(zap.InfoLevel)
	Watch(t.Context(), func() error { return nil }, zap.New(core))
	if logs.Len() != 1 {
		t.Errorf("%d lines", logs.Len())
	}
}
