package testkit

import (
	"os"
	"strconv"
	"sync"
	"syscall"
)

// bindToParent has the kernel kill the child when this process dies by whatever cause. The kernel counts the thread that
// forked as the parent; the Go runtime ends a thread only when a goroutine locked to it ends, which does not happen here.
func bindToParent(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGKILL
	closeInherited()
}

// closeInherited keeps descriptors that this process got from a script (a lock, a pipe) from being passed on, else a
// server would hold them. Descriptors opened by Go are not inherited anyway.
var closeInherited = sync.OnceFunc(func() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // without /proc there is nothing to list; servers then merely hold what a script left open
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
})
