package canal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// packets is the used part of the library's connection once the log is sent: framing, sequence numbers, TLS and socket errors
// remain the library's.
type packets interface {
	ReadPacketTo(to io.Writer) error
	HandleErrorPacket(data []byte) error
}

// ownReading makes this package read the packets. In tests a stream leaves that to the library, which is the oracle.
func ownReading(conn *client.Conn) packets { return conn }

// readOn reads the log after its first event until the stream breaks; the error is never nil. It runs in the library's goroutine,
// which ends when it returns.
func (s *stream) readOn(from packets) error {
	r := eventReader{from: from, buffer: eventBuffer{sieve: s.sieve}}
	for {
		e, err := r.next()
		if err != nil {
			return err
		}
		if err := s.handle(e); err != nil {
			return err
		}
	}
}

// eventReader reads each event into the same memory: what is kept of an event must be copied before the next.
type eventReader struct {
	from   packets
	buffer eventBuffer
	header replication.EventHeader
	event  replication.BinlogEvent
}

// next reads up to the next event. The sieve interprets it.
func (r *eventReader) next() (*replication.BinlogEvent, error) {
	for {
		r.buffer.reset()
		if err := r.from.ReadPacketTo(&r.buffer); err != nil {
			return nil, err
		}
		data := r.buffer.data
		if len(data) == 0 {
			return nil, errors.New("an empty packet in the log")
		}
		switch data[0] {
		case mysql.OK_HEADER:
			return r.parse(data[1:], r.buffer.size-1)
		case mysql.ERR_HEADER:
			return nil, r.from.HandleErrorPacket(data)
		}
		// The library also skips the others: an end of the log, which is not requested, and unknown packets.
	}
}

// parse reads the header. size is that of the whole event; data may be only its start. Checksums are not verified: the session
// requests events without them.
func (r *eventReader) parse(data []byte, size int) (*replication.BinlogEvent, error) {
	r.header = replication.EventHeader{}
	if err := r.header.Decode(data); err != nil {
		return nil, err
	}
	if int(r.header.EventSize) != size {
		return nil, fmt.Errorf("event of type %s that ends at %d has %d bytes, its header says %d", r.header.EventType, r.header.LogPos, size, r.header.EventSize)
	}
	r.event = replication.BinlogEvent{RawData: data, Header: &r.header}
	return &r.event, nil
}

const (
	// headLength is how much is kept of an event that is not used; shorter ones are kept whole.
	headLength = 64
	// packetStart are the bytes of a packet before the event's body.
	packetStart = 1 + replication.EventHeaderSize
	// keptBuffer is the largest buffer that is reused. The memory of larger events, which are rare, is released.
	keptBuffer = 1 << 20
	// grownAtOnce bounds what is allocated because of a header, before the bytes have arrived.
	grownAtOnce = 16 << 20
)

// eventBuffer takes one packet from the library, which writes it piece by piece. It keeps only the start of other tables' rows,
// so they need no memory however large they are.
type eventBuffer struct {
	sieve   *sieve
	data    []byte
	size    int  // of the packet, including what was not kept
	passing bool // the rest is not kept
}

func (b *eventBuffer) reset() {
	if cap(b.data) > keptBuffer {
		b.data = nil
	}
	b.data, b.size, b.passing = b.data[:0], 0, false
}

// Write implements io.Writer.
func (b *eventBuffer) Write(piece []byte) (int, error) {
	n, first := len(piece), b.size == 0
	b.size += n
	if b.passing {
		return n, nil
	}
	if first && n >= headLength && piece[0] == mysql.OK_HEADER {
		if b.sieve.passes(piece[1:packetStart], piece[packetStart:]) {
			b.passing, piece = true, piece[:headLength]
		} else {
			b.data = slices.Grow(b.data, 1+int(min(eventSize(piece[1:]), grownAtOnce)))
		}
	}
	b.data = append(b.data, piece...)
	return n, nil
}

// eventSize returns the size in an event's header.
func eventSize(header []byte) uint64 { return littleEndian(header[9:13]) }
