package kafka

import (
	"net"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire records which messages were never written to a connection, so that a stop can give them back. The client library does not say: it fails
// all messages that it holds with one error.
//
// Each Send has a number before the library has its messages, and each write of a produce request covers all numbers so far. So a message
// whose number is greater than those was in no request.
type wire struct {
	sends   atomic.Uint64 // the number of the last Send
	written atomic.Uint64 // the greatest number of a Send when a produce request was written
	cut     atomic.Bool   // no produce request is written any more
}

// never reports whether no message of a Send was written and none will be.
func (w *wire) never(send uint64) bool { return w.cut.Load() && send > w.written.Load() }

// produce notes that a produce request is about to be written; false: it must not be. The note comes first: a request that is let pass was noted
// before the cut.
func (w *wire) produce() bool {
	for {
		written, sends := w.written.Load(), w.sends.Load()
		if written >= sends || w.written.CompareAndSwap(written, sends) {
			return !w.cut.Load()
		}
	}
}

// wiredConn is above TLS: it sees requests.
type wiredConn struct {
	net.Conn
	wire *wire
}

// Write takes one whole request, which begins with its size in four bytes and its key in two. What is no request (SASL) may look like a produce
// request, which does no harm.
func (c wiredConn) Write(b []byte) (int, error) {
	if produce := len(b) < 6 || int16(b[4])<<8|int16(b[5]) == int16(kmsg.Produce); produce && !c.wire.produce() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}
