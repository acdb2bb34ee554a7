package relay

import "syscall"

// attributes lets the process die with this one, whatever the cause.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
