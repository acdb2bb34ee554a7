//go:build !linux

package security

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
