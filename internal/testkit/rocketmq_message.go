package testkit

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// RocketMQMessage is a stored message as a consumer gets it.
type RocketMQMessage struct {
	Topic       string
	QueueID     int
	QueueOffset int64
	Body        []byte // uncompressed
	Born        time.Time
	Producer    string // the address that the connection of the producer came from
	Stored      time.Time
	// Properties are all properties, those of the broker and the client included.
	Properties map[string]string
}

// Tag returns the message's tag.
func (m RocketMQMessage) Tag() string { return m.Properties["TAGS"] }

// Keys returns the index keys.
func (m RocketMQMessage) Keys() []string { return strings.Fields(m.Properties["KEYS"]) }

// ID returns the unique key that the producer gave, "" if none.
func (m RocketMQMessage) ID() string { return m.Properties["UNIQ_KEY"] }

var errShortMessage = errors.New("a message ends early")

// decodeMessages reads the body of a pull response: stored messages one after the other, in the commit log's format
// (org.apache.rocketmq.common.message.MessageDecoder).
func decodeMessages(data []byte) ([]RocketMQMessage, error) {
	var messages []RocketMQMessage
	for len(data) > 0 {
		if len(data) < 4 {
			return nil, errShortMessage
		}
		size := int(binary.BigEndian.Uint32(data))
		if size < 4 || size > len(data) {
			return nil, errShortMessage
		}
		m, err := decodeMessage(data[4:size])
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
		data = data[size:]
	}
	return messages, nil
}

// Marks of a stored message: the version of the format, and bits of its system flag.
const (
	magicV1         = 0xdaa320a7
	magicV2         = 0xdaa320ab
	flagCompressed  = 1
	flagBornIPv6    = 1 << 4
	flagStoredIPv6  = 1 << 5
	compressionMask = 7 << 8
	compressionZlib = 3 << 8
)

func decodeMessage(data []byte) (RocketMQMessage, error) {
	d := &decoder{data: data}
	magic := uint32(d.number(4))
	if magic != magicV1 && magic != magicV2 {
		return RocketMQMessage{}, fmt.Errorf("a message with the unknown magic number %#x", magic)
	}
	var m RocketMQMessage
	d.skip(4) // checksum of the body
	m.QueueID = int(d.number(4))
	d.skip(4) // flag of the application
	m.QueueOffset = d.number(8)
	d.skip(8) // position in the commit log
	flags := d.number(4)
	m.Born = time.UnixMilli(d.number(8))
	m.Producer = address(d.bytes(host(flags & flagBornIPv6)))
	m.Stored = time.UnixMilli(d.number(8))
	d.skip(host(flags & flagStoredIPv6))
	d.skip(4 + 8) // deliveries again, position of the prepared transaction
	body := d.bytes(int(d.number(4)))
	if magic == magicV2 {
		m.Topic = string(d.bytes(int(d.number(2))))
	} else {
		m.Topic = string(d.bytes(int(d.number(1))))
	}
	m.Properties = properties(string(d.bytes(int(d.number(2)))))
	if d.short {
		return m, errShortMessage
	}
	var err error
	m.Body, err = uncompressed(body, flags)
	return m, err
}

// address is host:port of an address with its port in four bytes.
func address(raw []byte) string {
	if len(raw) < net.IPv4len+4 {
		return ""
	}
	ip, port := raw[:len(raw)-4], binary.BigEndian.Uint32(raw[len(raw)-4:])
	return net.JoinHostPort(net.IP(ip).String(), strconv.Itoa(int(port)))
}

// host is the length of an address with its port.
func host(ipv6 int64) int {
	if ipv6 != 0 {
		return net.IPv6len + 4
	}
	return net.IPv4len + 4
}

func uncompressed(body []byte, flags int64) ([]byte, error) {
	if flags&flagCompressed == 0 {
		return body, nil
	}
	if kind := flags & compressionMask; kind != 0 && kind != compressionZlib {
		return nil, fmt.Errorf("a body with compression type %d, only zlib is known", kind>>8)
	}
	r, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("compressed body: %w", err)
	}
	return io.ReadAll(r)
}

// properties splits name 0x01 value 0x02 name ...
func properties(text string) map[string]string {
	found := map[string]string{}
	for pair := range strings.SplitSeq(text, "\x02") {
		if name, value, ok := strings.Cut(pair, "\x01"); ok {
			found[name] = value
		}
	}
	return found
}

// decoder takes big-endian fields off data; short says that data ended before a field did.
type decoder struct {
	data  []byte
	short bool
}

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.data) {
		d.short, d.data = true, nil
		return nil
	}
	field := d.data[:n]
	d.data = d.data[n:]
	return field
}

func (d *decoder) skip(n int) { d.bytes(n) }

func (d *decoder) number(size int) int64 {
	var n int64
	for _, b := range d.bytes(size) {
		n = n<<8 | int64(b)
	}
	return n
}
