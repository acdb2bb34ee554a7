package charset

import (
	"strings"
	"testing"
)

// A49: offsets count the stored bytes; a question mark stands for what is no character, as in the server's text.
func TestA49_Offsets(t *testing.T) {
	for _, c := range []struct {
		set, stored, text string
		bad               int
	}{
		{"latin1", "caf\xE9 \x80\x81", "café €\u0081", -1},
		{"gbk", "ab\xD6\xD0\xCE\xC4", "ab中文", -1},
		{"gbk", "ab\xD6\xD0\xA2\xA0c\xFF", "ab中?c?", 4},
		{"gbk", "ab\xD6", "ab?", 2},
		{"gbk", "\x80\xD6\xD0", "?中", 0},
		{"gb2312", "\xA1\xAA\x81\x40", "―?@", 2},
		{"gb18030", "\x90\x30\x81\x30\xD6\xD0", "\U00010000中", -1},
		{"gb18030", "\xD6\xD0\x81\x30\x81", "中?0?", 2},
		{"gbk", "", "", -1},
	} {
		set, known := Named(strings.ToUpper(c.set))
		if !known || set.Name() != c.set {
			t.Fatalf("%s: %v", c.set, set)
		}
		text, bad := set.Decode([]byte("> "), []byte(c.stored))
		if string(text) != "> "+c.text || bad != c.bad {
			t.Errorf("%s %x: %q, bad at %d", c.set, c.stored, text, bad)
		}
		stored, ok := set.Encode([]byte("> "), c.text)
		if bad < 0 && (!ok || string(stored) != "> "+c.stored) {
			t.Errorf("%s %q: %x %v", c.set, c.text, stored, ok)
		}
	}
	gbk, _ := Named("gbk")
	for _, text := range []string{"😀", "a\xff", "中ज", "\uFFFD"} {
		if stored, ok := gbk.Encode(nil, text); ok {
			t.Errorf("%q is %x", text, stored)
		}
	}
	for _, name := range []string{"utf16", "big5", "latin2", "of collation 5"} {
		if _, known := Named(name); known {
			t.Errorf("%s is known", name)
		}
	}
}

// FuzzDecode: whatever is stored, the text is valid, and a text without a fault goes back to the same bytes.
func FuzzDecode(f *testing.F) {
	f.Add("gbk", []byte("a\xD6\xD0"))
	f.Add("gb18030", []byte("\x81\x30\x81\x30\xFE\xFE"))
	f.Fuzz(func(t *testing.T, name string, stored []byte) {
		set, _ := Named(name)
		if set == nil {
			return
		}
		text, bad := set.Decode(nil, stored)
		back, ok := set.Encode(nil, string(text))
		if !ok || (bad < 0) != (string(back) == string(stored)) {
			t.Fatalf("%s %x is %q, bad at %d, and back %x", name, stored, text, bad, back)
		}
	})
}

// BenchmarkDecode is for texts of Chinese, of 3 kB in UTF-8.
func BenchmarkDecode(b *testing.B) {
	for name := range supported {
		set, _ := Named(name)
		text := "订单已支付 paid "
		if set.single {
			text = "Ärger über ñandú"
		}
		stored, _ := set.Encode(nil, strings.Repeat(text, 125))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			scratch := make([]byte, 0, 1<<14)
			for range b.N {
				_, _ = set.Decode(scratch[:0], stored)
			}
		})
	}
}
