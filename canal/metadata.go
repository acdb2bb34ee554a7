package canal

import (
	"errors"

	"github.com/go-mysql-org/go-mysql/replication"
)

// metadata is the optional part of a table map event, as far as plans need it. The library's decoding of it costs more per
// statement than all other work, so it is decoded here, and only when a table map differs from the previous one. Format: MySQL
// rows_event.h, Table_map_event::Optional_metadata_field_type (the same in MariaDB since 10.5).
type metadata struct {
	signedness []byte // one bit per numeric column, most significant first; 1: unsigned
	names      [][]byte
	collations []uint64 // default, then pairs of text column number and collation
	perColumn  []uint64 // or one per text column
}

var errTruncated = errors.New("table map event is cut short")

// optionalMetadata returns the part of a table map event's body after the NULL bitmap.
func optionalMetadata(body []byte, tm *replication.TableMapEvent) ([]byte, error) {
	r := byteReader{data: body}
	r.skip(6 + 2) // table id, flags; 4-byte ids ended with MySQL 5.1
	r.skip(1 + uint64(len(tm.Schema)) + 1)
	r.skip(1 + uint64(len(tm.Table)) + 1)
	r.skip(r.length())               // column types
	r.skip(r.length())               // type metadata
	r.skip((tm.ColumnCount + 7) / 8) // NULL bitmap
	if r.failed {
		return nil, errTruncated
	}
	return body[r.at:], nil
}

func parseMetadata(data []byte) (metadata, error) {
	var m metadata
	r := byteReader{data: data}
	for !r.failed && r.at < len(data) {
		field := r.byte()
		value := byteReader{data: r.bytes(r.length())}
		switch field {
		case replication.TABLE_MAP_OPT_META_SIGNEDNESS:
			m.signedness = value.data
		case replication.TABLE_MAP_OPT_META_COLUMN_NAME:
			for value.more() {
				m.names = append(m.names, value.bytes(uint64(value.byte())))
			}
		case replication.TABLE_MAP_OPT_META_DEFAULT_CHARSET:
			m.collations = value.numbers()
		case replication.TABLE_MAP_OPT_META_COLUMN_CHARSET:
			m.perColumn = value.numbers()
		}
		r.failed = r.failed || value.failed
	}
	if r.failed {
		return metadata{}, errTruncated
	}
	return m, nil
}

// byteReader reads bytes; missing bytes read as zero and set failed.
type byteReader struct {
	data   []byte
	at     int
	failed bool
}

func (r *byteReader) more() bool { return !r.failed && r.at < len(r.data) }

func (r *byteReader) bytes(n uint64) []byte {
	if r.failed || n > uint64(len(r.data)-r.at) {
		r.failed = true
		return nil
	}
	out := r.data[r.at : r.at+int(n)]
	r.at += int(n)
	return out
}

func (r *byteReader) skip(n uint64) { r.bytes(n) }

func (r *byteReader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// length reads a length-encoded integer (MySQL client/server protocol, "Protocol::LengthEncodedInteger").
func (r *byteReader) length() uint64 {
	first := r.byte()
	switch {
	case first < 0xfb:
		return uint64(first)
	case first == 0xfc:
		return littleEndian(r.bytes(2))
	case first == 0xfd:
		return littleEndian(r.bytes(3))
	case first == 0xfe:
		return littleEndian(r.bytes(8))
	}
	r.failed = true
	return 0
}

func (r *byteReader) numbers() []uint64 {
	var out []uint64
	for r.more() {
		out = append(out, r.length())
	}
	return out
}

func littleEndian(b []byte) uint64 {
	var n uint64
	for i := len(b) - 1; i >= 0; i-- {
		n = n<<8 | uint64(b[i])
	}
	return n
}

func bigEndian(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}
