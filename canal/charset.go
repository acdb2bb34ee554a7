package canal

import "strings"

// charset is how the bytes of a text column relate to what a SELECT over a utf8mb4 connection returns (A49).
type charset uint8

const (
	charsetUnknown charset = iota // the log does not say: the bytes are used as they are, the table was checked at the start
	charsetUTF8                   // utf8mb4, utf8mb3, ascii: the same bytes
	charsetBinary                 // the same bytes, but fixed-length columns lose their zero bytes at the end in the log
	charsetASCII                  // a superset of ASCII: the same bytes while all are below 0x80
	charsetOther                  // ucs2, utf16, utf32: never the same
)

func charsetByName(name string) charset {
	switch name = strings.ToLower(name); {
	case name == "":
		return charsetUnknown
	case name == "binary":
		return charsetBinary
	case name == "ascii", strings.HasPrefix(name, "utf8"):
		return charsetUTF8
	case strings.HasPrefix(name, "ucs2"), strings.HasPrefix(name, "utf16"), strings.HasPrefix(name, "utf32"):
		return charsetOther
	}
	return charsetASCII
}

// charsetByCollation maps the ids of information_schema.COLLATIONS of MySQL 5.7 to 9 and MariaDB up to 11.8. MariaDB's NO PAD
// collations have 1024 added; its uca1400 collations are in blocks of 256 from 2048.
func charsetByCollation(id uint64) charset {
	switch {
	case id >= 2048 && id < 2048+2*256:
		return charsetUTF8 // utf8mb3_uca1400, utf8mb4_uca1400
	case id >= 2048+2*256:
		return charsetOther
	case id >= 1024:
		id -= 1024
	}
	switch {
	case id == 63:
		return charsetBinary
	case id == 11, id == 65, id == 33, id == 83, id == 76, id == 45, id == 46, id >= 192 && id <= 247, id >= 255 && id <= 323,
		id >= 576 && id <= 632: // ascii, utf8mb3, utf8mb4
		return charsetUTF8
	case id == 35, id == 90, id == 54, id == 55, id == 56, id == 60, id == 61, id == 62, id >= 101 && id <= 183,
		id >= 640 && id <= 740: // ucs2, utf16, utf16le, utf32
		return charsetOther
	}
	return charsetASCII
}
