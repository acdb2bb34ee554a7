package security

import "syscall"

// attributes lets a child die with this process, whatever the cause.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
