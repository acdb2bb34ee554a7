package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	startDeadline = 3 * time.Minute
	stopDeadline  = 3 * time.Minute
)

// Server is one server process that can be killed, stopped, paused and started again. Its methods may be called from
// several goroutines, one after the other takes effect. The goroutine of each process waits for its end: a server that ends
// and was not told to says so on stderr, with the last lines of its log.
type Server struct {
	name    string
	log     string                      // file that collects stdout and stderr of all starts
	command func() *exec.Cmd            // a new command for each start
	ready   func(context.Context) error // one attempt to use the server as a client

	mu      sync.Mutex
	process *Process // of the last start
	ended   *Process // the process that was told to end, if it is the last one
	crash   string   // how the last process ended, if it was not told to, with the last lines of its log
}

// Start starts the process and returns when the server answers. The error of a failed start ends with the server's last
// log lines, and the process is gone then.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return fmt.Errorf("start %s: it is running already, with process id %d", s.name, s.process.PID())
	}
	if err := s.launch(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	if err := s.awaitReady(ctx); err != nil {
		s.ended = s.process
		err = errors.Join(err, s.process.Kill())
		return fmt.Errorf("start %s: %w; last lines of its log:\n%s", s.name, err, s.LogTail(30))
	}
	return nil
}

func (s *Server) launch() (err error) {
	s.crash = ""
	s.process, err = launch(s.command(), s.log, s.watch)
	return err
}

// watch is called at the end of a process. A crash fails every test that uses the server, and its directory is removed at their
// end: what the server said is only seen if it is printed.
func (s *Server) watch(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == p {
		return
	}
	crash := fmt.Sprintf("%s ended and was not told to: %v. The last lines of its log:\n%s", s.name, p.State(), s.LogTail(100))
	if s.process == p {
		s.crash = crash
	}
	fmt.Fprintln(os.Stderr, crash)
}

// Crash is how the server ended and what it said, if it was not told to end and was not started again. Otherwise it is empty.
func (s *Server) Crash() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crash
}

// showCrash puts the crash of a server into the log of a test that uses it: stderr belongs to whatever test runs.
func showCrash(t T, s anyServer) {
	if crash := s.Crash(); crash != "" {
		t.Logf("%s", crash)
	}
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		attempt, done := context.WithTimeout(ctx, 5*time.Second)
		err := s.ready(attempt)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.process.Exited():
			return fmt.Errorf("the process ended (%s)", s.process.State())
		case <-ctx.Done():
			return fmt.Errorf("it did not answer: %w (last attempt: %v)", ctx.Err(), err)
		}
	}
}

// running reports whether the process lives; the caller holds mu.
func (s *Server) running() bool { return s.process.Running() }

// Kill ends the process with SIGKILL and returns when it is gone. Killing a stopped server does nothing.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Stop ends the process with SIGTERM and returns when it is gone. If that takes longer than three minutes the process is
// killed and an error returned. RocketMQ's broker takes some 18 seconds.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

func (s *Server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return nil
	}
	s.ended = s.process
	// A paused process acts on SIGTERM only after SIGCONT.
	if err := errors.Join(s.process.Signal(sig), s.process.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	select {
	case <-s.process.Exited():
		return nil
	case <-time.After(stopDeadline):
	}
	err := s.process.Kill()
	return errors.Join(fmt.Errorf("%s did not stop within %v and was killed", s.name, stopDeadline), err)
}

// Pause freezes the process with SIGSTOP: its connections stay open and nothing answers.
func (s *Server) Pause() error { return s.signalRunning(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.signalRunning(syscall.SIGCONT) }

func (s *Server) signalRunning(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return fmt.Errorf("send %v to %s: it is not running", sig, s.name)
	}
	return s.process.Signal(sig)
}

// PID returns the process id, 0 when the server is not running.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return 0
	}
	return s.process.PID()
}

// LogTail returns the last n lines the server printed, over all its starts.
func (s *Server) LogTail(n int) string { return LogTail(s.log, n) }
