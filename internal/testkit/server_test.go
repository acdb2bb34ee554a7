package testkit

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func sleeper(t *testing.T) *Server {
	return &Server{
		name:    "sleeper",
		log:     filepath.Join(t.TempDir(), "server.log"),
		command: func() *exec.Cmd { return exec.Command("sh", "-c", "echo it said this; exec sleep 600") },
		ready:   func(context.Context) error { return nil },
	}
}

// A server that nobody stopped and that is gone has crashed, until it is started again.
func TestServerCrash(t *testing.T) {
	s := sleeper(t)
	Must(t, s.Start(t.Context()))
	t.Cleanup(func() { Must(t, s.Kill()) })
	Must(t, s.Stop())
	if s.Crash() != "" {
		t.Error("a server that was stopped is taken for one that crashed")
	}
	Must(t, s.Start(t.Context()))
	Must(t, syscall.Kill(s.PID(), syscall.SIGABRT))
	WaitFor(t, time.Minute, "the crash to be seen", func() bool { return s.Crash() != "" })
	Must(t, s.Start(t.Context()))
	if s.Crash() != "" {
		t.Error("a server that was started again is taken for one that crashed")
	}
	s.ready = func(context.Context) error { return errors.New("never") }
	Must(t, s.Kill())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if s.Start(ctx) == nil || s.Crash() != "" {
		t.Error("a start that failed and was cleaned up is taken for a crash")
	}
}

type sharedSleeper struct{ *Server }

func (s sharedSleeper) Close() error { return s.Kill() }

// The tests that come after the crash of a shared server get another one.
func TestSharedServerIsReplaced(t *testing.T) {
	get := func() sharedSleeper {
		return sharedServer(t, "sleeper", func(ctx context.Context) (sharedSleeper, error) {
			s := sleeper(t)
			return sharedSleeper{s}, s.Start(ctx)
		})
	}
	first := get()
	t.Cleanup(func() { Must(t, get().Kill()) })
	if get() != first {
		t.Error("a server that runs was replaced")
	}
	Must(t, syscall.Kill(first.PID(), syscall.SIGKILL))
	WaitFor(t, time.Minute, "the crash to be seen", func() bool { return first.Crash() != "" })
	if second := get(); second == first || second.PID() == 0 {
		t.Error("a server that crashed was not replaced")
	}
}

// A leak check that ignores servers ignores every goroutine of one that was started.
func TestIgnoreServers(t *testing.T) {
	others, servers := goleak.IgnoreCurrent(), IgnoreServers()
	s := sleeper(t)
	Must(t, s.Start(t.Context()))
	t.Cleanup(func() { Must(t, s.Kill()) })
	Must(t, goleak.Find(others, servers))
}
