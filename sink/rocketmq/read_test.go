package rocketmq

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// A topic is read back with ids and bodies, and two adjacent ranges of time return each message once.
func readBack(t *testing.T, r *testkit.RocketMQ, s *Sink) {
	const n = 100
	began := time.Now().Add(-time.Minute)
	want := map[string]string{}
	for range n / 10 { // requests of several milliseconds
		list := messages("read", "", 10)
		for _, m := range list {
			want[m.MessageID] = string(m.Body)
		}
		send(t, s, list...).want(outbox.ClassNone)
	}
	stored := readAll(t, r, "read", n)
	slices.SortFunc(stored, func(a, b testkit.RocketMQMessage) int { return a.Stored.Compare(b.Stored) })
	middle := stored[n/2].Stored
	read := func(from, to time.Time) (ids []string) {
		extent, err := s.Read(t.Context(), "read", from, to, func(m sink.Record) error {
			if body, known := want[m.MessageID]; !known || body != string(m.Body) || m.At.Before(from) || m.Place == "" {
				t.Errorf("read %+v", m)
			}
			ids = append(ids, m.MessageID)
			return nil
		})
		if err != nil || extent.Shortened {
			t.Fatalf("%+v, %v", extent, err)
		}
		return ids
	}
	first, second := read(began, middle), read(middle, time.Time{})
	early := slices.IndexFunc(stored, func(m testkit.RocketMQMessage) bool { return !m.Stored.Before(middle) })
	all := slices.Sorted(slices.Values(append(slices.Clone(first), second...)))
	if len(first) != early || len(second) != n-early || len(slices.Compact(all)) != n {
		t.Errorf("%d and %d messages, %d of them different ones, want %d and %d", len(first), len(second), len(slices.Compact(all)), early, n-early)
	}
	if none := read(time.Now().Add(time.Minute), time.Time{}); len(none) != 0 {
		t.Errorf("%d messages of the future", len(none))
	}
	if none := read(began.Add(-time.Hour), began); len(none) != 0 {
		t.Errorf("%d messages of before", len(none))
	}
	stop := errors.New("stop")
	if _, err := s.Read(t.Context(), "read", began, time.Time{}, func(sink.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped with %v", err)
	}
	if _, err := s.Read(t.Context(), "nowhere", began, time.Time{}, nil); err == nil || !strings.Contains(err.Error(), "topic nowhere: it does not exist") {
		t.Errorf("a topic that is not there: %v", err)
	}
}

// storedBytes is a message in the format of the commit log.
func storedBytes(magic uint32, flags int, properties string, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), magic)
	b = append(b, make([]byte, 4+4+4)...)
	b = binary.BigEndian.AppendUint64(b, 7)
	b = append(b, make([]byte, 8)...)
	b = binary.BigEndian.AppendUint32(b, uint32(flags))
	b = append(b, make([]byte, 8+address(int64(flags)&flagBornIPv6))...)
	b = binary.BigEndian.AppendUint64(b, uint64(time.Unix(1e9, 0).UnixMilli()))
	b = append(b, make([]byte, address(int64(flags)&flagStoredIPv6)+4+8)...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	if magic == storedV2 {
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
func TestDecodeStored(t *testing.T) {
	const properties = "KEYS\x01m-1 k\x02UNIQ_KEY\x01m-1\x02"
	for _, magic := range []uint32{storedV1, storedV2} {
		for _, flags := range []int{0, flagBornIPv6, flagStoredIPv6, flagBornIPv6 | flagStoredIPv6, flagCompressed | 1<<8} {
			one := storedBytes(magic, flags, properties, []byte("body"))
			found, err := decodeStored(append(slices.Clone(one), one...))
			if err != nil || len(found) != 2 {
				t.Fatalf("%#x, flags %#x: %d messages, %v", magic, flags, len(found), err)
			}
			if r := found[1]; r.messageID != "m-1" || string(r.body) != "body" || r.offset != 7 || !r.stored.Equal(time.Unix(1e9, 0)) {
				t.Errorf("%#x, flags %#x: %+v", magic, flags, r)
			}
			for n := range len(one) {
				cut := slices.Clone(one[:n])
				if _, err := decodeStored(cut); n > 0 && err == nil {
					t.Errorf("%d of %d bytes are taken for a message", n, len(one))
				}
				if n >= 4 {
					binary.BigEndian.PutUint32(cut, uint32(n))
					if _, err := decodeStored(cut); err == nil {
						t.Errorf("a message of %d bytes that has %d is taken", len(one), n)
					}
				}
			}
		}
	}
	if _, err := decodeStored(storedBytes(1, 0, "", nil)); err == nil || !strings.Contains(err.Error(), "magic") {
		t.Errorf("another format: %v", err)
	}
	if _, err := decodeStored(storedBytes(storedV1, flagCompressed, "", []byte("no zlib"))); err == nil {
		t.Error("a body that cannot be inflated")
	}
	if r, err := decodeStored(storedBytes(storedV1, 0, "", nil)); err != nil || r[0].messageID != "" {
		t.Errorf("without an id: %+v, %v", r, err)
	}
}
