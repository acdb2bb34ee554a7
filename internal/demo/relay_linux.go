package demo

import "syscall"

// bindToParent has the kernel end the relay when the demo itself is killed. The kernel counts the thread that forked as the
// parent; Go ends a thread only with a goroutine that is locked to it, and there is none here.
func bindToParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
