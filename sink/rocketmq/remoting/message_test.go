package remoting

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"
)

// storedBytes is a message in the format of the commit log.
func storedBytes(magic uint32, flags int, properties string, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), magic)
	b = append(b, make([]byte, 4+4+4)...)
	b = binary.BigEndian.AppendUint64(b, 7)
	b = append(b, make([]byte, 8)...)
	b = binary.BigEndian.AppendUint32(b, uint32(flags))
	b = append(b, make([]byte, 8+addressSize(int64(flags)&flagBornIPv6))...)
	b = binary.BigEndian.AppendUint64(b, uint64(time.Unix(1e9, 0).UnixMilli()))
	b = append(b, make([]byte, addressSize(int64(flags)&flagStoredIPv6)+4+8)...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	if magic == formatV2 {
		b = append(b, 0)
	}
	b = append(b, 6)
	b = append(b, "orders"...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(properties)))
	b = append(b, properties...)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

// Both versions of the format, with both kinds of addresses; cut or garbled data is an error and never read beyond its end.
func TestDecodeMessages(t *testing.T) {
	const properties = "KEYS\x01m-1 k\x02UNIQ_KEY\x01m-1\x02"
	for _, magic := range []uint32{formatV1, formatV2} {
		for _, flags := range []int{0, flagBornIPv6, flagStoredIPv6, flagBornIPv6 | flagStoredIPv6, flagCompressed | 1<<8} {
			one := storedBytes(magic, flags, properties, []byte("body"))
			found, err := DecodeMessages(append(slices.Clone(one), one...))
			if err != nil || len(found) != 2 {
				t.Fatalf("%#x, flags %#x: %d messages, %v", magic, flags, len(found), err)
			}
			if r := found[1]; r.ID() != "m-1" || string(r.Body) != "body" || r.QueueOffset != 7 || !r.Stored.Equal(time.Unix(1e9, 0)) {
				t.Errorf("%#x, flags %#x: %+v", magic, flags, r)
			}
			for n := range len(one) {
				cut := slices.Clone(one[:n])
				if _, err := DecodeMessages(cut); n > 0 && err == nil {
					t.Errorf("%d of %d bytes are taken for a message", n, len(one))
				}
				if n >= 4 {
					binary.BigEndian.PutUint32(cut, uint32(n))
					if _, err := DecodeMessages(cut); err == nil {
						t.Errorf("a message of %d bytes that has %d is taken", len(one), n)
					}
				}
			}
		}
	}
	if _, err := DecodeMessages(storedBytes(1, 0, "", nil)); err == nil || !strings.Contains(err.Error(), "magic") {
		t.Errorf("another format: %v", err)
	}
	if _, err := DecodeMessages(storedBytes(formatV1, flagCompressed, "", []byte("no zlib"))); err == nil {
		t.Error("a body that cannot be inflated")
	}
	if r, err := DecodeMessages(storedBytes(formatV1, 0, "", nil)); err != nil || r[0].ID() != "" {
		t.Errorf("without an id: %+v, %v", r, err)
	}
}
