package rocketmq

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// storedRecord is a message as a consumer gets it from a broker.
type storedRecord struct {
	offset    int64 // in its queue
	stored    time.Time
	messageID string // UNIQ_KEY; "" when it has none
	body      []byte
}

// Constants of the format: its versions, and bits of a message's system flag.
const (
	storedV1       = 0xdaa320a7
	storedV2       = 0xdaa320ab // with a longer topic
	flagCompressed = 1
	flagBornIPv6   = 1 << 4
	flagStoredIPv6 = 1 << 5
	kindMask       = 7 << 8 // of the compression; 0 and zlib are the same
	kindZlib       = 3 << 8
)

var errShortRecord = errors.New("a message ends early")

// decodeStored decodes the body of an answer to a pull: messages in the format of the commit log
// (org.apache.rocketmq.common.message.MessageDecoder). The client library's decoder supports one version of it and reads beyond
// the end.
func decodeStored(data []byte) (found []storedRecord, err error) {
	for len(data) > 0 {
		if len(data) < 4 {
			return nil, errShortRecord
		}
		size := binary.BigEndian.Uint32(data)
		if size < 4 || uint64(size) > uint64(len(data)) {
			return nil, errShortRecord
		}
		one, err := decodeRecord(data[4:size])
		if err != nil {
			return nil, err
		}
		found, data = append(found, one), data[size:]
	}
	return found, nil
}

func decodeRecord(data []byte) (r storedRecord, err error) {
	f := fields{data: data}
	magic := uint32(f.number(4))
	if magic != storedV1 && magic != storedV2 {
		return r, fmt.Errorf("a message with the unknown magic number %#x", magic)
	}
	f.bytes(4 + 4 + 4) // checksum, queue, flag of the application
	r.offset = f.number(8)
	f.bytes(8) // position in the commit log
	flags := f.number(4)
	f.bytes(8 + address(flags&flagBornIPv6)) // born
	r.stored = time.UnixMilli(f.number(8))
	f.bytes(address(flags & flagStoredIPv6))
	f.bytes(4 + 8) // deliveries again, position of the prepared transaction
	body := f.bytes(int(f.number(4)))
	topic := 1
	if magic == storedV2 {
		topic = 2
	}
	f.bytes(int(f.number(topic)))
	properties := f.bytes(int(f.number(2)))
	if f.short {
		return r, errShortRecord
	}
	r.messageID = uniqueKey(string(properties))
	r.body, err = inflated(body, flags)
	return r, err
}

// address is the length of a host with its port.
func address(ipv6 int64) int {
	if ipv6 != 0 {
		return 16 + 4
	}
	return 4 + 4
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

// uniqueKey returns the message id from the properties: name \x01 value \x02 name ...
func uniqueKey(properties string) string {
	for pair := range strings.SplitSeq(properties, "\x02") {
		if name, value, found := strings.Cut(pair, "\x01"); found && name == "UNIQ_KEY" {
			return value
		}
	}
	return ""
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
