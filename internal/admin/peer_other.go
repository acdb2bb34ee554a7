//go:build !linux

package admin

import "net"

// peer identifies no user on this system: the file mode of the socket decides who may use it.
func peer(net.Conn) (uid int, ok bool) { return 0, false }
