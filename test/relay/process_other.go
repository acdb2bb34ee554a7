//go:build !linux

package relay

import "syscall"

// attributes keeps the terminal's signals from the process.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
