package canal

import (
	"math"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// cursor follows file and offset through a stream. Event headers have 32 bits of the offset: they wrap in a file larger than 4
// GiB (A45), and MariaDB 11.4 and later write 0 inside transactions (A39). Only offsets from the server are used; sums would be
// wrong, because the server does not send every event of the file.
type cursor struct{ outbox.Position }

// rotate moves to the file of a Rotate event. The artificial one at the start of a stream always has offset 4 (A46); that is
// harmless, because only transaction ends are reported.
func (c *cursor) rotate(file []byte, offset uint64) {
	c.File, c.Offset = string(file), offset
}

// advance takes the end offset of an event; 0 means that the server did not send it.
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
