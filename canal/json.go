package canal

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// jsonText prints a JSON column of MySQL as a SELECT does (A47): keys in stored order, a blank after comma and colon. It is not
// used for MariaDB, whose JSON is text. Format: MySQL json_binary.h; text: json_dom.cc, Json_wrapper::to_string.
func jsonText(data, to []byte) ([]byte, error) {
	if len(data) == 0 { // stored by INSERT IGNORE and similar; the server reads it as the null literal
		return append(to, "null"...), nil
	}
	return jsonValue(data[0], data[1:], to, 0)
}

const maxJSONDepth = 100 // the server's own limit

var errJSON = errors.New("JSON value is damaged, or of a kind that is not read from the log")

func jsonValue(typ byte, data, to []byte, depth int) ([]byte, error) {
	if depth > maxJSONDepth {
		return to, errJSON
	}
	switch typ {
	case replication.JSONB_SMALL_OBJECT, replication.JSONB_LARGE_OBJECT, replication.JSONB_SMALL_ARRAY, replication.JSONB_LARGE_ARRAY:
		return jsonContainer(typ, data, to, depth)
	case replication.JSONB_STRING:
		text, err := jsonBytes(data)
		return appendJSONString(to, text), err
	case replication.JSONB_OPAQUE:
		return jsonOpaqueText(data, to)
	}
	return jsonScalar(typ, data, to)
}

func jsonScalar(typ byte, data, to []byte) ([]byte, error) {
	sizes := [...]int{
		replication.JSONB_LITERAL: 1, replication.JSONB_INT16: 2, replication.JSONB_UINT16: 2, replication.JSONB_INT32: 4, replication.JSONB_UINT32: 4,
		replication.JSONB_INT64: 8, replication.JSONB_UINT64: 8, replication.JSONB_DOUBLE: 8,
	}
	if int(typ) >= len(sizes) || len(data) < sizes[typ] {
		return to, errJSON
	}
	n := littleEndian(data[:sizes[typ]])
	switch typ {
	case replication.JSONB_INT16:
		return strconv.AppendInt(to, int64(int16(n)), 10), nil
	case replication.JSONB_INT32:
		return strconv.AppendInt(to, int64(int32(n)), 10), nil
	case replication.JSONB_INT64:
		return strconv.AppendInt(to, int64(n), 10), nil
	case replication.JSONB_UINT16, replication.JSONB_UINT32, replication.JSONB_UINT64:
		return strconv.AppendUint(to, n, 10), nil
	case replication.JSONB_DOUBLE:
		f := math.Float64frombits(n)
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return to, errJSON
		}
		return appendJSONDouble(to, f)
	}
	if n > 2 {
		return to, errJSON
	}
	return append(to, [...]string{"null", "true", "false"}[n]...), nil
}

// jsonContainer prints an object or array: element count, byte size, key entries (offset, length), value entries (type, offset or
// a value that fits).
func jsonContainer(typ byte, data, to []byte, depth int) ([]byte, error) {
	object := typ == replication.JSONB_SMALL_OBJECT || typ == replication.JSONB_LARGE_OBJECT
	width := 2
	if typ == replication.JSONB_LARGE_OBJECT || typ == replication.JSONB_LARGE_ARRAY {
		width = 4
	}
	if len(data) < 2*width {
		return to, errJSON
	}
	count, size := littleEndian(data[:width]), littleEndian(data[width:2*width])
	keys, values := 2*width, 2*width
	if object {
		values += int(count) * (width + 2)
	}
	if size > uint64(len(data)) || count > size || values+int(count)*(width+1) > int(size) {
		return to, errJSON
	}
	data = data[:size]
	brackets := "[]"
	if object {
		brackets = "{}"
	}
	to = append(to, brackets[0])
	for i := range int(count) {
		if i > 0 {
			to = append(to, ", "...)
		}
		var err error
		if object {
			if to, err = jsonKey(data, keys+i*(width+2), width, to); err != nil {
				return to, err
			}
		}
		if to, err = jsonElement(data, values+i*(width+1), width, to, depth); err != nil {
			return to, err
		}
	}
	return append(to, brackets[1]), nil
}

func jsonKey(data []byte, at, width int, to []byte) ([]byte, error) {
	from, n := littleEndian(data[at:at+width]), littleEndian(data[at+width:at+width+2])
	if from+n > uint64(len(data)) {
		return to, errJSON
	}
	return append(appendJSONString(to, data[from:from+n]), ": "...), nil
}

func jsonElement(data []byte, at, width int, to []byte, depth int) ([]byte, error) {
	typ, inline := data[at], data[at+1:at+1+width]
	switch typ {
	case replication.JSONB_LITERAL, replication.JSONB_INT16, replication.JSONB_UINT16:
		return jsonScalar(typ, inline, to)
	case replication.JSONB_INT32, replication.JSONB_UINT32:
		if width == 4 {
			return jsonScalar(typ, inline, to)
		}
	}
	offset := littleEndian(inline)
	if offset >= uint64(len(data)) || offset == 0 {
		return to, errJSON
	}
	return jsonValue(typ, data[offset:], to, depth+1)
}

// jsonBytes reads a length in groups of seven bits, lowest first, and as many bytes.
func jsonBytes(data []byte) ([]byte, error) {
	n, shift := uint64(0), 0
	for i, b := range data {
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if n > uint64(len(data)-i-1) {
				return nil, errJSON
			}
			return data[i+1 : i+1+int(n)], nil
		}
		if shift += 7; shift > 28 {
			break
		}
	}
	return nil, errJSON
}

// jsonOpaqueText prints decimals, the only opaque values whose text needs no quoting rules. The others (dates, binary strings)
// are rare inside JSON and left to the sweep.
func jsonOpaqueText(data, to []byte) ([]byte, error) {
	if len(data) < 1 || data[0] != mysql.MYSQL_TYPE_NEWDECIMAL {
		return to, errJSON
	}
	b, err := jsonBytes(data[1:])
	if err != nil || len(b) < 2 || b[1] > b[0] || b[0] > 65 || len(b)-2 < decimalWidth(int(b[0]), int(b[1])) {
		return to, errJSON
	}
	width := decimalWidth(int(b[0]), int(b[1]))
	return decimal(b[2:2+width], int(b[0]), int(b[1]), to), nil
}

// appendJSONString quotes as the server does: it escapes only what it must.
func appendJSONString(to, text []byte) []byte {
	const hex = "0123456789abcdef"
	to = append(to, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c >= 0x20:
			to = append(to, c)
		case c == '\b':
			to = append(to, '\\', 'b')
		case c == '\f':
			to = append(to, '\\', 'f')
		case c == '\n':
			to = append(to, '\\', 'n')
		case c == '\r':
			to = append(to, '\\', 'r')
		case c == '\t':
			to = append(to, '\\', 't')
		default:
			to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(to, '"')
}

// appendJSONDouble follows my_gcvt (MySQL dtoa.cc): the shortest digits that read back equal, in scientific notation when
// the point lies more than 15 places away and not among the digits, and ".0" behind what would look like an integer.
func appendJSONDouble(to []byte, f float64) ([]byte, error) {
	var buf [32]byte
	e := strconv.AppendFloat(buf[:0], f, 'e', -1, 64)
	exponentAt := bytes.IndexByte(e, 'e')
	exponent, err := strconv.Atoi(string(e[exponentAt+1:]))
	if err != nil {
		return to, err
	}
	digits := len(bytes.TrimLeft(e[:exponentAt], "-")) - 1 // without the point
	if exponent < -15 || exponent >= 15 && digits <= exponent+1 {
		to = append(append(to, e[:exponentAt]...), 'e')
		return strconv.AppendInt(to, int64(exponent), 10), nil
	}
	from := len(to)
	to = strconv.AppendFloat(to, f, 'f', -1, 64)
	if bytes.IndexByte(to[from:], '.') < 0 {
		to = append(to, ".0"...)
	}
	return to, nil
}
