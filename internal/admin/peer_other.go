//go:build !linux

package admin

import "net"

// peer is not asked here: whoever uses the socket may by its file mode.
func peer(net.Conn) (uid int, ok bool) { return 0, false }
