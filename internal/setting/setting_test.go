package setting

import "testing"

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "17": 17, "64MiB": 64 << 20, "64 MiB": 64 << 20, "1KB": 1000, "2GiB": 2 << 30, "5B": 5} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q: got %d, %v", text, b, err)
			continue
		}
		var again Bytes
		if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b {
			t.Errorf("%v reads back as %v, %v", b, again, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "MiB", "9223372036854775807KiB"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken as %v", text, b)
		}
	}
}
