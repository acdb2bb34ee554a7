//go:build !linux

package demo

import "syscall"

// bindToParent does nothing here: only Linux can tie a child's life to its parent's.
func bindToParent(*syscall.SysProcAttr) {}
