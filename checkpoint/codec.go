package checkpoint

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// The first byte of a key says what the record is. DESIGN.md has the table.
const (
	kindChange     byte = 'a'
	kindCheckpoint byte = 'c'
	kindDay        byte = 'd'
	kindPast       byte = 'f'
	kindGap        byte = 'g'
	kindHistory    byte = 'h'
	kindOrigin     byte = 'i'
	kindRedelivery byte = 'r'
	kindWritten    byte = 'k' // these two are neighbours: one scan reads the journal
	kindSent       byte = 'l'
	kindPause      byte = 'p'
	kindSource     byte = 's'
	kindSchema     byte = 't'
	kindWait       byte = 'w'
)

// recordVersion is the only version of every kind of record so far. A record of a later one makes Open return ErrNewer.
const recordVersion byte = 1

// headerSize is what precedes the payload: crc32c of key, version and payload, then the version.
const headerSize = 5

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal fills in the header of a value whose payload starts at headerSize. The key is in the sum, so that a value under
// another key is found out too.
func seal(key, value []byte) {
	value[4] = recordVersion
	binary.LittleEndian.PutUint32(value, sum(key, value))
}

func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value[4:])
}

// unseal checks a value and returns its payload, which shares the value's memory.
func unseal(key, value []byte) ([]byte, error) {
	if len(value) < headerSize || binary.LittleEndian.Uint32(value) != sum(key, value) {
		return nil, fmt.Errorf("%w: checksum of a %q record", errRecord, kindOf(key))
	}
	if value[4] != recordVersion {
		return nil, fmt.Errorf("%w: a %q record has version %d", ErrNewer, kindOf(key), value[4])
	}
	return value[headerSize:], nil
}

func kindOf(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	return string(key[:1])
}

// blankHeader is what a value starts with until seal fills it in.
var blankHeader [headerSize]byte

func appendText(b []byte, text string) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

func appendPosition(b []byte, p outbox.Position) []byte {
	b = appendText(b, p.File)
	b = binary.AppendUvarint(b, p.Offset)
	return appendText(b, p.GTIDs)
}

func appendSource(b []byte, id server.ID) []byte {
	b = appendText(b, string(id.Flavor))
	b = appendText(b, id.UUID)
	return binary.AppendUvarint(b, uint64(id.ServerID))
}

// appendSent is a record of rows in the journal. Each text is what differs from the same one of the row before: ids that follow each other
// take a few bytes.
func appendSent(b []byte, at time.Time, sent []outbox.Completion) []byte {
	b = append(b, blankHeader[:]...)
	b = binary.AppendVarint(b, at.UnixMilli())
	var before outbox.Completion
	for i := range sent {
		c := &sent[i]
		b = appendDifference(b, before.Table, c.Table)
		b = appendDifference(b, before.ID, c.ID)
		b = appendDifference(b, before.MessageID, c.MessageID)
		b = appendDifference(b, before.BrokerID, c.BrokerID)
		before.Identity, before.BrokerID = c.Identity, c.BrokerID
	}
	return b
}

// appendDifference is how many bytes two texts begin with in common, and the rest of the second.
func appendDifference(b []byte, before, text string) []byte {
	n := 0
	for n < len(before) && n < len(text) && before[n] == text[n] {
		n++
	}
	b = binary.AppendUvarint(b, uint64(n))
	return appendText(b, text[n:])
}

// numberedKey sorts by number.
func numberedKey(b []byte, kind byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, kind), number)
}

func numberOf(key []byte) (uint64, error) {
	if len(key) != 9 {
		return 0, fmt.Errorf("%w: key of a %q record", errRecord, kindOf(key))
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}

func appendCheckpoint(b []byte, at time.Time, p outbox.Position) []byte {
	b = append(b, blankHeader[:]...)
	b = binary.AppendVarint(b, at.UnixMilli())
	return appendPosition(b, p)
}

func appendEntry(b []byte, e Entry) []byte {
	b = append(b, blankHeader[:]...)
	b = binary.AppendVarint(b, e.At.UnixMilli())
	b = appendPosition(b, e.Position)
	b = appendSource(b, e.Source)
	return appendText(b, e.Reason)
}
