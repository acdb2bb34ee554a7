package security

import "syscall"

// attributes makes a child end with this process, whatever the cause.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
