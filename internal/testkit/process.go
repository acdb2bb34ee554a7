package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Process is a child of this process, of which it cannot outlive more than an instant on Linux. Its methods may be called
// from several goroutines. One goroutine waits for its end.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has been reaped
}

// Launch starts the command, whose output is appended to the file log.
func Launch(cmd *exec.Cmd, log string) (*Process, error) { return launch(cmd, log, func(*Process) {}) }

// launch calls ended when the process has been reaped, in the goroutine that waited for it.
func launch(cmd *exec.Cmd, log string, ended func(*Process)) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // a Ctrl-C at the terminal is for the parent, which then stops its children
	bindToParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	go p.reap(ended)
	return p, nil
}

// reap waits for the process to end. How it ended is in its log and no error here: tests kill processes on purpose.
func (p *Process) reap(ended func(*Process)) {
	_ = p.cmd.Wait()
	close(p.exited)
	ended(p)
}

// Exited is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running reports whether the process lives. A nil process does not.
func (p *Process) Running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// PID is the process id, also of a process that is gone.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// State returns how the process ended. It is valid once Exited is closed.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Signal sends to the process group, so that children of a wrapper get it too. A process that is gone needs no signal.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(-p.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, p.PID(), err)
	}
	return nil
}

// Kill ends the process with SIGKILL and returns when it is gone. A nil process needs nothing.
func (p *Process) Kill() error {
	if p == nil {
		return nil
	}
	err := p.Signal(syscall.SIGKILL)
	if err == nil {
		<-p.exited
	}
	return err
}

// LogTail returns the last n lines of a log file.
func LogTail(log string, n int) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// RelayEnvironment is this process's environment without what would override a relay's configuration, and in English.
func RelayEnvironment() []string {
	kept := []string{"LC_ALL=C"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CANAL_OUTBOX_") && !strings.HasPrefix(v, "LC_ALL=") {
			kept = append(kept, v)
		}
	}
	return kept
}
