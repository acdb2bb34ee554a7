package remoting

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

// Message is a message as a consumer gets it from a broker.
type Message struct {
	Topic       string
	QueueID     int
	QueueOffset int64
	Body        []byte // uncompressed
	Born        time.Time
	Producer    string // the address that the connection of the producer came from
	Stored      time.Time
	Properties  map[string]string // those of the broker and the client included
}

// Tag returns the tag.
func (m Message) Tag() string { return m.Properties["TAGS"] }

// Keys returns the index keys.
func (m Message) Keys() []string { return strings.Fields(m.Properties["KEYS"]) }

// ID returns the unique key that the producer set, "" if none.
func (m Message) ID() string { return m.Properties["UNIQ_KEY"] }

// Versions of the format, and bits of a message's system flag.
const (
	formatV1       = 0xdaa320a7
	formatV2       = 0xdaa320ab // with a longer topic
	flagCompressed = 1
	flagBornIPv6   = 1 << 4
	flagStoredIPv6 = 1 << 5
	kindMask       = 7 << 8 // of the compression; 0 and zlib are the same
	kindZlib       = 3 << 8
)

var errShort = errors.New("a message ends early")

// DecodeMessages decodes the body of an answer to Pull: messages in the format of the commit log
// (org.apache.rocketmq.common.message.MessageDecoder). The client library's decoder supports one version of it and reads beyond
// the end.
func DecodeMessages(data []byte) (found []Message, err error) {
	for len(data) > 0 {
		if len(data) < 4 {
			return nil, errShort
		}
		size := binary.BigEndian.Uint32(data)
		if size < 4 || uint64(size) > uint64(len(data)) {
			return nil, errShort
		}
		one, err := decodeMessage(data[4:size])
		if err != nil {
			return nil, err
		}
		found, data = append(found, one), data[size:]
	}
	return found, nil
}

func decodeMessage(data []byte) (m Message, err error) {
	f := fields{data: data}
	magic := uint32(f.number(4))
	if magic != formatV1 && magic != formatV2 {
		return m, fmt.Errorf("a message with the unknown magic number %#x", magic)
	}
	f.bytes(4) // checksum
	m.QueueID = int(f.number(4))
	f.bytes(4) // flag of the application
	m.QueueOffset = f.number(8)
	f.bytes(8) // position in the commit log
	flags := f.number(4)
	m.Born = time.UnixMilli(f.number(8))
	m.Producer = address(f.bytes(addressSize(flags & flagBornIPv6)))
	m.Stored = time.UnixMilli(f.number(8))
	f.bytes(addressSize(flags & flagStoredIPv6))
	f.bytes(4 + 8) // deliveries again, position of the prepared transaction
	body := f.bytes(int(f.number(4)))
	topic := 1
	if magic == formatV2 {
		topic = 2
	}
	m.Topic = string(f.bytes(int(f.number(topic))))
	m.Properties = SplitProperties(string(f.bytes(int(f.number(2)))))
	if f.short {
		return m, errShort
	}
	m.Body, err = inflated(body, flags)
	return m, err
}

// addressSize is the length of an address with its port in four bytes.
func addressSize(ipv6 int64) int {
	if ipv6 != 0 {
		return net.IPv6len + 4
	}
	return net.IPv4len + 4
}

func address(raw []byte) string {
	if len(raw) < net.IPv4len+4 {
		return ""
	}
	ip, port := raw[:len(raw)-4], binary.BigEndian.Uint32(raw[len(raw)-4:])
	return net.JoinHostPort(net.IP(ip).String(), strconv.Itoa(int(port)))
}

// inflated undoes a zlib compression. A body that is compressed in another way is not from the relay, and stays as it is.
func inflated(body []byte, flags int64) ([]byte, error) {
	if kind := flags & kindMask; flags&flagCompressed == 0 || kind != 0 && kind != kindZlib {
		return body, nil
	}
	r, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("a compressed body: %w", err)
	}
	return io.ReadAll(io.LimitReader(r, maxResponse))
}

// SplitProperties splits name \x01 value \x02 name ...
func SplitProperties(text string) map[string]string {
	found := map[string]string{}
	for pair := range strings.SplitSeq(text, "\x02") {
		if name, value, is := strings.Cut(pair, "\x01"); is {
			found[name] = value
		}
	}
	return found
}

// fields reads big-endian fields from data; short is set when data ended too early.
type fields struct {
	data  []byte
	short bool
}

func (f *fields) bytes(n int) []byte {
	if n < 0 || n > len(f.data) {
		f.short, f.data = true, nil
		return nil
	}
	field := f.data[:n]
	f.data = f.data[n:]
	return field
}

func (f *fields) number(size int) (n int64) {
	for _, b := range f.bytes(size) {
		n = n<<8 | int64(b)
	}
	return n
}
