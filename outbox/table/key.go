package table

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A primary key travels as text (outbox.Identity.ID) and comes back into statements as what its column is: digits as they
// are, because a string compared with an integer column is compared as a floating point number by some versions; text as an
// argument, which the server compares in the column's own collation; bytes as a hexadecimal literal. The server sorts the
// keys that a statement names before it locks the first, so the order of the list is not that of the locks.

// IsBytes reports whether a column's values are bytes and no text: they are shown in lower-case hexadecimal digits.
func (c *ColumnType) IsBytes() bool {
	kind := c.Kind()
	return kind == kindFixed || kind == kindBinary
}

// KeyText is the text of a value of one of the roles that name rows (ID, MessageID, Key).
func (t *Table) KeyText(role Column, data []byte) []byte {
	c := t.columns[role]
	if c == nil || !c.IsBytes() || len(data) == 0 {
		return data
	}
	size := len(data)
	if c.Kind() == kindFixed { // the log leaves the zero bytes at the end away
		size = max(size, int(c.Octets))
	}
	text := make([]byte, hex.EncodedLen(size))
	for i := hex.Encode(text, data); i < len(text); i++ {
		text[i] = '0'
	}
	return text
}

// maxKey is the longest primary key that is taken, in bytes: as much as an index of InnoDB holds.
const maxKey = 3072

// CheckID refuses what cannot be a primary key of this table.
func (t *Table) CheckID(id string) error {
	switch c := t.columns[ID]; {
	case c.Kind() == KindInteger:
		digits := strings.TrimPrefix(id, "-")
		if digits == "" || len(digits) > 20 || strings.Trim(digits, "0123456789") != "" {
			return fmt.Errorf("%q is not an integer primary key", id)
		}
	case c.IsBytes():
		if id == "" || len(id)%2 != 0 || len(id) > 2*maxKey || strings.Trim(id, "0123456789abcdef") != "" {
			return fmt.Errorf("%q is not a primary key in hexadecimal digits", id)
		}
	case c.set() != nil && strings.HasPrefix(id, noText):
		return fmt.Errorf("%q is not a primary key: its bytes are no text in %s", id[len(noText):], c.Charset)
	case id == "" || len(id) > maxKey || !utf8.ValidString(id):
		return fmt.Errorf("%q is not a primary key", id)
	case !c.holds(id):
		return fmt.Errorf("%q is not a primary key: the column's character set, %s, does not have all of its characters", id, c.Charset)
	}
	return nil
}

// ID writes a primary key that checkID has taken.
func (t *Table) ID(s *Statement, id string) {
	switch c := t.columns[ID]; {
	case c.Kind() == KindInteger:
		s.Add(id)
	case c.IsBytes():
		s.Add("x'", id, "'")
	default:
		t.text(s, c, id)
	}
}

// text writes a text that the column holds. In a set other than UTF-8 it is there as the column stores it: MariaDB 10.11 does not convert the texts of
// "(id, ...) IN ((?, ...), (?, ...))", and both servers refuse a statement with a text that the set does not have (1267, 3854).
func (t *Table) text(s *Statement, c *ColumnType, value string) {
	set := c.set()
	if set == nil {
		s.Arg(value)
		return
	}
	stored, raw := strings.CutPrefix(value, noText)
	if !raw {
		if bytes, ok := set.Encode(nil, value); ok {
			stored, raw = string(bytes), true
		}
	}
	if !raw {
		s.Arg(value)
		return
	}
	s.Add("_", set.Name(), " ")
	s.Bytes(stored)
}

// NoID returns a primary key for statements that are only explained.
func (t *Table) NoID() string {
	if t.columns[ID].IsBytes() {
		return "00"
	}
	return "0"
}
