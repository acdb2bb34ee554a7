package charset

import (
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/simplifiedchinese"
)

// The tables are those of golang.org/x/text, which follow the WHATWG encoding standard, with what the servers do otherwise.

// newPairs is an empty set of pairs, with what a pair is there.
func newPairs(name string, first1 [2]byte, least2 byte) *Set {
	return &Set{name: name, chars: make([]rune, 1<<16), codes: map[rune]uint16{}, first1: first1, least2: least2}
}

func (s *Set) put(code uint16, r rune) { s.chars[code], s.codes[r] = r, code }

// latin1 of the servers is Windows-1252, with control characters in its five gaps.
func latin1() *Set {
	s := &Set{name: "latin1", single: true, chars: make([]rune, 1<<8), codes: map[rune]uint16{}}
	for code := uint16(0x80); code <= 0xFF; code++ {
		r := charmap.Windows1252.DecodeByte(byte(code))
		if r == utf8.RuneError {
			r = rune(code)
		}
		s.put(code, r)
	}
	return s
}

// gbk of the servers is code page 936: without the euro sign, and without the 81 characters that the standard has added to GBK.
func gbk() *Set {
	s := newPairs("gbk", [2]byte{0x81, 0xFE}, 0x40)
	eachPair(simplifiedchinese.GBK, func(code uint16, r rune) {
		switch {
		case code == 0xA2E3, code == 0xA3A0, code == 0xA8BF, code >= 0xA989 && code <= 0xA995, code >= 0xFE50:
		default:
			s.put(code, r)
		}
	})
	return s
}

// gb2312 of the servers is the part of gbk that EUC-CN has, with two signs that have another character there.
func gb2312() *Set {
	s := newPairs("gb2312", [2]byte{0xA1, 0xF7}, 0xA1)
	for code, r := range gbk().chars {
		high, low := code>>8, code&0xFF
		switch {
		case r == 0, high < 0xA1 || high > 0xF7, low < 0xA1:
		case code >= 0xA2A1 && code <= 0xA2AA, code >= 0xA6E0 && code <= 0xA6F5, code == 0xA8BB, code == 0xA8BD, code == 0xA8BE, code == 0xA8C0:
		case code == 0xA1A4:
			s.put(0xA1A4, '\u30FB')
		case code == 0xA1AA:
			s.put(0xA1AA, '\u2015')
		default:
			s.put(uint16(code), r)
		}
	}
	return s
}

// gb18030 of MySQL (MariaDB has none) is the standard of 2005: every pair is a character, those without a standard one of the private use area, in three
// blocks and then in the order of the codes.
func gb18030() *Set {
	s, base := newPairs("gb18030", [2]byte{0x81, 0xFE}, 0x40), gbk()
	standard := map[uint16]rune{}
	eachPair(simplifiedchinese.GB18030, func(code uint16, r rune) { standard[code] = r })
	standard[0xA8BC] = 0x1E3F // which the library has in four bytes
	next := rune(0xE766)
	for high := 0x81; high <= 0xFE; high++ {
		for low := 0x40; low <= 0xFE; low++ {
			code := uint16(high<<8 | low)
			private, inBlock := privateBlock(high, low)
			switch r := base.chars[code]; {
			case low == 0x7F:
			case inBlock:
				s.put(code, private)
			case r != 0:
				s.put(code, r)
			default:
				if r = standard[code]; r == 0 {
					r = next
				}
				s.put(code, r)
				next++
			}
		}
	}
	s.four = newFourBytes(s)
	return s
}

func privateBlock(high, low int) (r rune, ok bool) {
	switch {
	case high >= 0xAA && high <= 0xAF && low >= 0xA1:
		return rune(0xE000 + (high-0xAA)*94 + low - 0xA1), true
	case high >= 0xF8 && low >= 0xA1:
		return rune(0xE234 + (high-0xF8)*94 + low - 0xA1), true
	case high >= 0xA1 && high <= 0xA7 && low <= 0xA0:
		if low > 0x7F {
			low--
		}
		return rune(0xE4C6 + (high-0xA1)*96 + low - 0x40), true
	}
	return 0, false
}

// eachPair calls each for the codes of two bytes that a table of the library has.
func eachPair(of encoding.Encoding, each func(code uint16, r rune)) {
	decoder := of.NewDecoder()
	var pair [2]byte
	var text [8]byte
	for code := uint16(0x8140); code != 0; code++ {
		pair[0], pair[1] = byte(code>>8), byte(code)
		decoder.Reset()
		n, _, err := decoder.Transform(text[:], pair[:], true)
		if r, size := utf8.DecodeRune(text[:n]); err == nil && size == n && r != utf8.RuneError {
			each(code, r)
		}
	}
}
