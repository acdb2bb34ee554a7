package testkit

import (
	"bytes"
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
	startDeadline = 120 * time.Second
	stopDeadline  = 60 * time.Second
)

// Server is one server process that can be killed, stopped, paused and started again. Its methods may be called from
// several goroutines, one after the other takes effect.
type Server struct {
	name    string
	log     string                      // file that collects stdout and stderr of all starts
	command func() *exec.Cmd            // a new command for each start
	ready   func(context.Context) error // one attempt to use the server as a client

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process of cmd has been reaped
}

// Start starts the process and returns when the server answers. The error of a failed start ends with the server's last
// log lines, and the process is gone then.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return fmt.Errorf("start %s: it is running already, with process id %d", s.name, s.cmd.Process.Pid)
	}
	if err := s.launch(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	if err := s.awaitReady(ctx); err != nil {
		s.signal(syscall.SIGKILL)
		<-s.exited
		return fmt.Errorf("start %s: %w; last lines of its log:\n%s", s.name, err, s.LogTail(30))
	}
	return nil
}

func (s *Server) launch() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // a Ctrl-C at the terminal is for the test, which then stops its servers
	bindToParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.exited = cmd, make(chan struct{})
	go reap(cmd, s.exited)
	return nil
}

// reap waits for the process to end. How it ended is in its log and no error here: tests kill servers on purpose.
func reap(cmd *exec.Cmd, exited chan<- struct{}) {
	defer close(exited)
	_ = cmd.Wait()
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
		case <-s.exited:
			return fmt.Errorf("the process ended (%s)", s.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("it did not answer: %w (last attempt: %v)", ctx.Err(), err)
		}
	}
}

// running reports whether the process lives; the caller holds mu.
func (s *Server) running() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// signal sends to the process group, so that children of a wrapper get it too. A process that is gone needs no signal.
func (s *Server) signal(sig syscall.Signal) error {
	if err := syscall.Kill(-s.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to %s: %w", sig, s.name, err)
	}
	return nil
}

// Kill ends the process with SIGKILL and returns when it is gone. Killing a stopped server does nothing.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Stop ends the process with SIGTERM and returns when it is gone. If that takes longer than a minute the process is
// killed and an error returned. RocketMQ's broker takes some 18 seconds.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

func (s *Server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return nil
	}
	// A paused process acts on SIGTERM only after SIGCONT.
	if err := errors.Join(s.signal(sig), s.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	select {
	case <-s.exited:
		return nil
	case <-time.After(stopDeadline):
	}
	err := s.signal(syscall.SIGKILL)
	<-s.exited
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
	return s.signal(sig)
}

// PID returns the process id, 0 when the server is not running.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return 0
	}
	return s.cmd.Process.Pid
}

// LogTail returns the last n lines the server printed, over all its starts.
func (s *Server) LogTail(n int) string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}
