package charset

import "unicode/utf8"

// fourBytes are the codes of four bytes that GB18030 has: a digit of 126, one of 10, one of 126, one of 10. They count the characters of the basic plane
// that have no pair, in order, and from 0x90308130 on those of the other planes.
type fourBytes struct {
	chars []rune // by number
	codes map[rune]int
}

// supplementary is the number of the code 0x90308130.
const supplementary = (0x90 - 0x81) * 10 * 126 * 10

// newFourBytes numbers what the pairs leave. The standard of 2005 gave U+1E3F, which had a code of four bytes, a pair, and its code to the character that had
// had the pair.
func newFourBytes(pairs *Set) *fourBytes {
	const moved, private = 0x1E3F, 0xE7C7
	f := &fourBytes{codes: map[rune]int{}}
	for r := rune(utf8.RuneSelf); r <= 0xFFFF; r++ {
		_, hasPair := pairs.codes[r]
		switch {
		case r >= 0xD800 && r <= 0xDFFF, r == private, hasPair && r != moved:
			continue
		}
		char := r
		if r == moved {
			char = private
		}
		f.codes[char] = len(f.chars)
		f.chars = append(f.chars, char)
	}
	return f
}

func (f *fourBytes) first(text []byte) (r rune, n int) {
	if len(text) < 4 || text[0] < 0x81 || text[0] > 0xFE || text[2] < 0x81 || text[2] > 0xFE || text[3] < '0' || text[3] > '9' {
		return 0, 1
	}
	number := ((int(text[0])-0x81)*10+int(text[1])-'0')*1260 + (int(text[2])-0x81)*10 + int(text[3]) - '0'
	switch {
	case number < len(f.chars):
		return f.chars[number], 4
	case number >= supplementary && number-supplementary <= utf8.MaxRune-0x10000:
		return rune(number - supplementary + 0x10000), 4
	}
	return 0, 4
}

func (f *fourBytes) has(r rune) bool {
	_, ok := f.codes[r]
	return ok || r >= 0x10000 && r <= utf8.MaxRune
}

func (f *fourBytes) encode(to []byte, r rune) (out []byte, ok bool) {
	if !f.has(r) {
		return to, false
	}
	number := f.codes[r]
	if r >= 0x10000 {
		number = int(r) - 0x10000 + supplementary
	}
	return append(to, byte(number/12600)+0x81, byte(number/1260%10)+'0', byte(number/10%126)+0x81, byte(number%10)+'0'), true
}
