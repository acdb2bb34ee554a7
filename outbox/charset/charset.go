// Package charset converts text between UTF-8 and the character sets in which older tables hold it. The binary log has the bytes as they are stored; a
// SELECT shows what the server makes of them. A row must be one message on both ways, so the tables here are the server's.
//
// Guarantee: for every code of a supported set the result is what MySQL and MariaDB answer to CONVERT(... USING utf8mb4), which the tests compare on the
// real servers. A Set does not change and is safe for concurrent use. No I/O.
package charset

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Set is a character set whose bytes are not those of UTF-8. Each of them has ASCII in one byte.
type Set struct {
	name   string
	single bool   // every code has one byte
	chars  []rune // by code: one byte, or two of which the first is the higher; 0 for none
	codes  map[rune]uint16
	first1 [2]byte    // the lowest and the highest first byte of a pair
	least2 byte       // the lowest second byte
	four   *fourBytes // nil: no code has four bytes
}

// supported makes each set when it is first used: a table of two bytes takes some milliseconds, and most relays need none.
var supported = map[string]func() *Set{
	"latin1":  sync.OnceValue(latin1),
	"gbk":     sync.OnceValue(gbk),
	"gb2312":  sync.OnceValue(gb2312),
	"gb18030": sync.OnceValue(gb18030),
}

// Named finds a set by the server's name of it. known is false for a set that is not supported. The set is nil, and known true, where the bytes need no
// conversion: UTF-8, ASCII, and columns of bytes or without a character set ("binary", "").
func Named(name string) (set *Set, known bool) {
	switch name = strings.ToLower(name); name {
	case "", "binary", "ascii", "utf8", "utf8mb3", "utf8mb4":
		return nil, true
	}
	make, known := supported[name]
	if !known {
		return nil, false
	}
	return make(), true
}

// Supported lists the sets for a message to a person.
const Supported = "utf8mb4, utf8mb3, ascii, latin1, gbk, gb2312 and gb18030"

// Name is the server's name of the set.
func (s *Set) Name() string { return s.name }

// Decode appends the text in UTF-8. bad is the offset in the text of the first byte that is no character of the set, for which the server shows a
// question mark, as this does; -1 when there is none.
func (s *Set) Decode(to, text []byte) (out []byte, bad int) {
	bad = -1
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			to = append(to, text[i])
			i++
			continue
		}
		r, n := s.first(text[i:])
		if r == 0 {
			if bad < 0 {
				bad = i
			}
			r = '?'
		}
		to = utf8.AppendRune(to, r)
		i += n
	}
	return to, bad
}

// Text is Decode of a stored text whose fault is for people; "" when there is none. A text of ASCII is the stored bytes themselves; any other is appended to
// scratch, which is returned.
func (s *Set) Text(stored, scratch []byte) (text, grown []byte, fault string) {
	if !slices.ContainsFunc(stored, func(b byte) bool { return b >= utf8.RuneSelf }) {
		return stored, scratch, ""
	}
	from := len(scratch)
	scratch, bad := s.Decode(scratch, stored)
	if bad >= 0 {
		fault = fmt.Sprintf("its bytes from offset %d on are no text in %s", bad, s.name)
	}
	return scratch[from:], scratch, fault
}

// first is the character at the beginning of a text, 0 for none, and the number of its bytes. The first byte is not of ASCII.
func (s *Set) first(text []byte) (r rune, n int) {
	switch {
	case s.single:
		return s.chars[text[0]], 1
	case len(text) < 2:
		return 0, 1
	case s.four != nil && text[1] >= '0' && text[1] <= '9':
		return s.four.first(text)
	}
	r = s.chars[uint(text[0])<<8|uint(text[1])]
	if r == 0 && (text[0] < s.first1[0] || text[0] > s.first1[1] || text[1] < s.least2 || text[1] == 0x7F || text[1] == 0xFF) {
		return 0, 1 // no pair at all
	}
	return r, 2
}

// Encode appends a text of UTF-8 in the set. ok is false where the set does not have one of its characters, or the text is not valid; out is then of no use.
func (s *Set) Encode(to []byte, text string) (out []byte, ok bool) {
	for i, r := range text {
		switch code := s.codes[r]; {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			return to, false
		case r < utf8.RuneSelf:
			to = append(to, byte(r))
		case code > 0xFF:
			to = append(to, byte(code>>8), byte(code))
		case code > 0:
			to = append(to, byte(code))
		case s.four != nil:
			if to, ok = s.four.encode(to, r); !ok {
				return to, false
			}
		default:
			return to, false
		}
	}
	return to, true
}

// Size is how many bytes a character takes; 0 when the set does not have it.
func (s *Set) Size(r rune) int {
	switch code := s.codes[r]; {
	case r < utf8.RuneSelf:
		return 1
	case code > 0xFF:
		return 2
	case code > 0:
		return 1
	case s.four != nil && s.four.has(r):
		return 4
	}
	return 0
}
