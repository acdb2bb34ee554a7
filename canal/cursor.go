package canal

import (
	"math"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// cursor follows file and offset through a stream. Event headers carry 32 bits of the offset, so a file beyond 4 GiB
// wraps (A45), and MariaDB 11.4 and later write 0 inside transactions (A39). Only offsets that the server gave are used;
// nothing is added up, because not every event of the file is sent.
type cursor struct{ outbox.Position }

// rotate goes to a file named by a Rotate event. The artificial one at the begin of a stream says offset 4 whatever was
// asked for (A46); that does no harm, since only transaction ends are ever reported.
func (c *cursor) rotate(file []byte, offset uint64) {
	c.File, c.Offset = string(file), offset
}

// advance takes the end offset of an event; 0 means that the server did not give it.
func (c *cursor) advance(low uint32) {
	if low == 0 {
		return
	}
	offset := c.Offset&^math.MaxUint32 | uint64(low)
	if offset < c.Offset { // offsets only grow within a file, and no event is that long
		offset += 1 << 32
	}
	c.Offset = offset
}
