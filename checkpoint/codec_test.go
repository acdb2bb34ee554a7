package checkpoint

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// decodeAny reads one record the way Open does and gives it back as it would be written again.
func decodeAny(key, value []byte) (againKey, againValue []byte, err error) {
	switch key[0] {
	case kindSent:
		sent, at, err := decodeSent(key, value, nil)
		return key, appendSent(nil, at, sent), err
	case kindCheckpoint:
		p, at, err := decodeCheckpoint(key, value)
		return []byte{kindCheckpoint}, appendCheckpoint(nil, at, p), err
	case kindHistory:
		e, err := decodeEntry(key, value)
		return numberedKey(nil, kindHistory, e.Number), appendEntry(nil, e), err
	}
	_, err = unseal(key, value)
	return key, bytes.Clone(value), err
}

func seeds() (keys, values [][]byte) {
	add := func(key, value []byte) {
		seal(key, value)
		keys, values = append(keys, key), append(values, value)
	}
	at := time.UnixMilli(1_795_000_000_123)
	p := outbox.Position{File: "binlog.000042", Offset: 1 << 33, GTIDs: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:app:1-3"}
	id := server.ID{Flavor: outbox.MySQL, UUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562", ServerID: 1<<32 - 1}
	add(numberedKey(nil, kindSent, 1), appendSent(nil, at, []outbox.Completion{
		{Identity: outbox.Identity{Table: "shop.t", ID: "41", MessageID: "order:41"}, BrokerID: "orders-0@7"},
		{Identity: outbox.Identity{Table: "shop.t", ID: "42", MessageID: "order:42"}, BrokerID: "orders-0@8"},
		{Identity: outbox.Identity{Table: "shop.t", ID: "42", MessageID: "order:42"}, BrokerID: "orders-0@8"},
		{Identity: outbox.Identity{Table: "shop", ID: "\x00\xff"}},
		{},
	}))
	add(numberedKey(nil, kindSent, 1<<40), appendSent(nil, time.UnixMilli(-1), make([]outbox.Completion, 1)))
	add(numberedKey(nil, kindWritten, 1), append(blankHeader[:headerSize:headerSize], 0b101))
	add([]byte{kindCheckpoint}, appendCheckpoint(nil, at, p))
	add(numberedKey(nil, kindHistory, 1<<40), appendEntry(nil, Entry{At: at, Position: p, Source: id, Reason: "rollback to entry 7"}))
	add(numberedKey(nil, kindHistory, 1), appendEntry(nil, Entry{At: at}))
	add([]byte("tshop.t"), append(blankHeader[:headerSize:headerSize], `{"columns":["id"]}`...))
	return keys, values
}

func TestRecordsReadBack(t *testing.T) {
	keys, values := seeds()
	for i := range keys {
		key, value, err := decodeAny(keys[i], values[i])
		if err != nil {
			t.Errorf("%q: %v", keys[i], err)
			continue
		}
		seal(key, value)
		if !bytes.Equal(key, keys[i]) || !bytes.Equal(value, values[i]) {
			t.Errorf("%q %q reads back as %q %q", keys[i], values[i], key, value)
		}
	}
}

// C05: no single changed byte in key or value, and no cut value, is taken for a record.
func TestC05_ChangedRecordsAreRefused(t *testing.T) {
	keys, values := seeds()
	for n := range keys {
		record := append(bytes.Clone(keys[n]), values[n]...)
		for i := range record {
			for bit := range 8 {
				changed := bytes.Clone(record)
				changed[i] ^= 1 << bit
				if _, _, err := decodeAny(changed[:len(keys[n])], changed[len(keys[n]):]); !errors.Is(err, errRecord) {
					t.Fatalf("record %d with bit %d of byte %d changed: %v", n, bit, i, err)
				}
			}
		}
		for length := range values[n] {
			if _, _, err := decodeAny(keys[n], values[n][:length]); !errors.Is(err, errRecord) {
				t.Fatalf("record %d cut to %d bytes: %v", n, length, err)
			}
		}
	}
}

// FuzzRecord: any bytes under any key either are refused or read as a record that reads back the same. The fuzzer cannot
// guess checksums, so each input is tried as it is and with the right one.
func FuzzRecord(f *testing.F) {
	keys, values := seeds()
	for i := range keys {
		f.Add(keys[i], values[i])
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if len(key) == 0 {
			return
		}
		_, _, _ = decodeAny(key, value)
		if len(value) < headerSize {
			return
		}
		seal(key, value)
		key1, value1, err := decodeAny(key, value)
		if err != nil {
			if !errors.Is(err, errRecord) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		seal(key1, value1)
		key2, value2, err := decodeAny(key1, value1)
		if err != nil {
			t.Fatalf("%q %q was taken, but not what was made of it: %v", key, value, err)
		}
		seal(key2, value2)
		if !bytes.Equal(key1, key2) || !bytes.Equal(value1, value2) {
			t.Fatalf("%q %q reads differently each time", key, value)
		}
	})
}
