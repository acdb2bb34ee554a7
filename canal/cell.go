package canal

import (
	"errors"
	"strconv"

	"github.com/go-mysql-org/go-mysql/mysql"
)

var (
	errShort  = errors.New("row image is cut short")
	errUnsure = errors.New("a text is not in ASCII, and the character set of its column is the default of the database, which the log does not show")
)

// size is the number of bytes that the value at the start of data takes, its length prefix included.
func (c *column) size(data []byte) (int, error) {
	n, prefix := c.width, 0
	if n == 0 {
		prefix = c.prefix()
		if len(data) < prefix {
			return 0, errShort
		}
		n = prefix + int(littleEndian(data[:prefix]))
	}
	if n > len(data) || n < 0 {
		return 0, errShort
	}
	return n, nil
}

// prefix is the number of bytes of the length in front of a value.
func (c *column) prefix() int {
	switch c.typ {
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING:
		if c.meta > 255 {
			return 2
		}
		return 1
	case mysql.MYSQL_TYPE_STRING:
		if c.charLength() > 255 {
			return 2
		}
		return 1
	}
	return int(c.meta) // BLOB, JSON and the like
}

// charLength is the maximum length of a CHAR in bytes. Above 255 its two upper bits are stored, inverted, in the type byte (MySQL
// Field_string::save_field_metadata).
func (c *column) charLength() int {
	return int(c.meta&0xff) | (int(c.meta>>4)&0x300 ^ 0x300)
}

// text returns the value as table.Value needs it: as the server prints it, TIMESTAMP in UTC, a text in its character set. A value that must be formatted is
// appended to scratch, which is returned; other values alias data.
func (c *column) text(data, scratch []byte) (text, grown []byte, err error) {
	from := len(scratch)
	switch c.typ {
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING, mysql.MYSQL_TYPE_BLOB:
		return data[c.prefix():], scratch, nil
	case mysql.MYSQL_TYPE_STRING:
		text, scratch = c.char(data[c.prefix():], scratch)
		return text, scratch, nil
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_LONGLONG:
		scratch = c.integer(data, scratch)
	case mysql.MYSQL_TYPE_DATETIME2:
		scratch = datetime(data, int(c.meta), scratch)
	case mysql.MYSQL_TYPE_TIMESTAMP2:
		scratch = timestamp(data, int(c.meta), scratch)
	case mysql.MYSQL_TYPE_JSON:
		scratch, err = jsonText(data[c.prefix():], scratch)
	}
	return scratch[from:], scratch, err
}

// char is a CHAR or BINARY. The log omits the padding; a SELECT omits it for CHAR only.
func (c *column) char(data, scratch []byte) (text, grown []byte) {
	if !c.binary {
		return data, scratch
	}
	from := len(scratch)
	scratch = append(scratch, data...)
	for n := c.charLength() - len(data); n > 0; n-- {
		scratch = append(scratch, 0)
	}
	return scratch[from:], scratch
}

func (c *column) integer(data, scratch []byte) []byte {
	n := littleEndian(data)
	if c.unsigned {
		return strconv.AppendUint(scratch, n, 10)
	}
	unused := 64 - 8*len(data)
	return strconv.AppendInt(scratch, int64(n<<unused)>>unused, 10)
}

// decimal formats the packed form (MySQL decimal.c, decimal2bin): nine digits in four bytes, leftovers in fewer, big
// endian, the first bit inverted, negative numbers with all bits inverted.
func decimal(data []byte, precision, scale int, scratch []byte) []byte {
	var buf [64]byte
	b := append(buf[:0], data...)
	if b[0]&0x80 == 0 {
		scratch = append(scratch, '-')
		for i := range b {
			b[i] = ^b[i]
		}
	}
	b[0] ^= 0x80
	whole := precision - scale
	from := len(scratch)
	first := decimalBytes[whole%9]
	scratch, b = appendDigits(scratch, bigEndian(b[:first]), whole%9), b[first:]
	for range whole / 9 {
		scratch, b = appendDigits(scratch, bigEndian(b[:4]), 9), b[4:]
	}
	scratch = dropZeros(scratch, from)
	if scale == 0 {
		return scratch
	}
	scratch = append(scratch, '.')
	for range scale / 9 {
		scratch, b = appendDigits(scratch, bigEndian(b[:4]), 9), b[4:]
	}
	return appendDigits(scratch, bigEndian(b), scale%9)
}

var decimalBytes = [...]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

func decimalWidth(precision, scale int) int {
	whole := precision - scale
	if whole < 0 {
		return 1
	}
	return whole/9*4 + decimalBytes[whole%9] + scale/9*4 + decimalBytes[scale%9]
}

func appendDigits(to []byte, n uint64, digits int) []byte {
	for digit := digits - 1; digit >= 0; digit-- {
		to = append(to, '0'+byte(n/powers[digit]%10))
	}
	return to
}

var powers = [...]uint64{1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000}

// dropZeros removes leading zeros from b[from:] and keeps at least one digit.
func dropZeros(b []byte, from int) []byte {
	zeros := 0
	for from+zeros < len(b) && b[from+zeros] == '0' {
		zeros++
	}
	if from+zeros == len(b) {
		return append(b[:from], '0')
	}
	return append(b[:from], b[from+zeros:]...)
}
