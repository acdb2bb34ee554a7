package admin

import (
	"net"
	"syscall"
)

// peer is the user at the other end of a unix socket, as the kernel knows it.
func peer(conn net.Conn) (uid int, ok bool) {
	socket, is := conn.(*net.UnixConn)
	if !is {
		return 0, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, false
	}
	var cred *syscall.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		cred, asked = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err != nil || asked != nil {
		return 0, false
	}
	return int(cred.Uid), true
}
