package outbox

import (
	"strconv"
	"testing"
)

// FuzzPosition: positions of any text have one order, and a file name that is accepted from a person has a number.
func FuzzPosition(f *testing.F) {
	f.Add("binlog.000001", "binlog.000002", "binlog.1000000", uint64(4), uint64(4))
	f.Add("binlog.999999", "", "x.", uint64(0), uint64(1)<<63)
	f.Add("a.b.7", "/etc/passwd.1", "mysql bin.000001", uint64(4), uint64(5))
	f.Add("binlog.18446744073709551615", "binlog.18446744073709551616", "binlog.-1", uint64(4), uint64(4))
	f.Fuzz(func(t *testing.T, x, y, z string, m, n uint64) {
		all := []Position{{File: x, Offset: m}, {File: x, Offset: n}, {File: y, Offset: m}, {File: z, Offset: n}, {GTIDs: y}}
		for _, a := range all {
			for _, b := range all {
				if a.Compare(b) != -b.Compare(a) {
					t.Fatalf("%v and %v: %d one way, %d the other", a, b, a.Compare(b), b.Compare(a))
				}
				for _, c := range all {
					if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
						t.Fatalf("%v, %v, %v have no order", a, b, c)
					}
				}
			}
			if ParseFile(a.File) != nil {
				continue
			}
			if first := (Position{File: a.File, Offset: 4}); first.Compare(Position{}) <= 0 || first.IsZero() {
				t.Fatalf("%q is accepted and comes before everything", a.File)
			}
			if want := a.File + ":" + strconv.FormatUint(a.Offset, 10); a.String() != want {
				t.Fatalf("%q, want %q", a.String(), want)
			}
		}
	})
}
