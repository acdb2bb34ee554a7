package outbox

import (
	"testing"

	"pgregory.net/rapid"
)

const uuidA, uuidB = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4f22fa47-71ca-11e1-9e33-c80aa9429562"

func TestGTIDSetTextRoundTrip(t *testing.T) {
	for _, c := range []struct {
		flavor   Flavor
		in, want string
	}{
		{MySQL, "", ""},
		{MySQL, uuidA + ":1-5", uuidA + ":1-5"},
		{MySQL, uuidA + ":1-3:5:4", uuidA + ":1-5"},
		{MySQL, uuidA + ":1-5:app:1-3:7,\n" + uuidB + ":9", uuidA + ":1-5:app:1-3:7," + uuidB + ":9"},
		{MySQL, uuidA + ":app:10", uuidA + ":app:10"},
		{MariaDB, "1-2-7, 0-1-100", "0-1-100,1-2-7"},
	} {
		s, err := ParseGTIDSet(c.flavor, c.in)
		if err != nil {
			t.Fatalf("%q: %v", c.in, err)
		}
		if got := s.String(); got != c.want {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestGTIDSetRejectsBadText(t *testing.T) {
	for _, c := range []struct {
		flavor Flavor
		in     string
	}{
		{MySQL, "x"},
		{MySQL, uuidA},
		{MySQL, uuidA + ":"},
		{MySQL, uuidA + ":0"},
		{MySQL, uuidA + ":5-3"},
		{MySQL, uuidA + ":app"},
		{MySQL, "0-1-100"},
		{MariaDB, uuidA + ":1"},
		{MariaDB, "0-1"},
		{MariaDB, "0-1-2,0-2-3"},
		{MariaDB, "0-1--2"},
	} {
		if s, err := ParseGTIDSet(c.flavor, c.in); err == nil {
			t.Errorf("%q was taken as %q", c.in, s)
		}
	}
}

// A22: tagged and untagged transactions of one server are counted separately.
func TestA22_TagsAreKept(t *testing.T) {
	s := NewGTIDSet(MySQL)
	s.Add(GTID{Source: uuidA + ":app", Seq: 10})
	s.Add(GTID{Source: uuidA, Seq: 5})
	if got, want := s.String(), uuidA+":5:app:10"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	if holds(s, GTID{Source: uuidA, Seq: 10}) || !holds(s, GTID{Source: uuidA + ":app", Seq: 10}) {
		t.Fatal("the tag was lost")
	}
}

func holds(s *GTIDSet, g GTID) bool {
	one := NewGTIDSet(s.Flavor())
	one.Add(g)
	return s.Contains(one)
}

// A60: however many intervals a set has, adding a transaction allocates nothing, and its text is built in one piece.
func TestA60_CostOfALargeSet(t *testing.T) {
	const source = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	s, next := NewGTIDSet(MySQL), uint64(0)
	for range 5000 {
		next += 2
		s.Add(GTID{Source: source, Seq: next})
	}
	if n := testing.AllocsPerRun(100, func() { next++; s.Add(GTID{Source: source, Seq: next}) }); n != 0 {
		t.Errorf("a transaction allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { _ = s.String() }); n > 4 {
		t.Errorf("the text allocates %v times", n)
	}
}

func TestGTIDSetAgainstNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, model := NewGTIDSet(MySQL), map[GTID]bool{}
		for _, n := range rapid.SliceOf(rapid.Uint64Range(1, 40)).Draw(t, "seqs") {
			g := GTID{Source: rapid.SampledFrom([]string{uuidA, uuidA + ":app", uuidB}).Draw(t, "source"), Seq: n}
			set.Add(g)
			model[g] = true
		}
		again, err := ParseGTIDSet(MySQL, set.String())
		if err != nil || again.String() != set.String() {
			t.Fatalf("text form %q does not read back: %v", set, err)
		}
		for _, src := range []string{uuidA, uuidA + ":app", uuidB} {
			for n := uint64(1); n <= 41; n++ {
				g := GTID{Source: src, Seq: n}
				if holds(set, g) != model[g] {
					t.Fatalf("%v: set %v, model %v", g, holds(set, g), model[g])
				}
			}
		}
	})
}

func TestMariaDBSetIsTheLastOfEachDomain(t *testing.T) {
	s, err := ParseGTIDSet(MariaDB, "0-1-100")
	if err != nil {
		t.Fatal(err)
	}
	s.Add(GTID{Source: "0", Server: 2, Seq: 101})
	s.Add(GTID{Source: "7", Server: 2, Seq: 1})
	if got, want := s.String(), "0-2-101,7-2-1"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	older, _ := ParseGTIDSet(MariaDB, "0-1-100")
	if !s.Contains(older) || older.Contains(s) {
		t.Fatal("containment is by sequence per domain")
	}
}

// The set in a checkpoint does not change when reading continues, and continuing allocates nothing.
func TestMariaDBSetGoesOnInPlace(t *testing.T) {
	set := NewGTIDSet(MariaDB)
	set.Add(GTID{Source: "0", Server: 1, Seq: 10})
	kept, added := set.Clone(), NewGTIDSet(MariaDB)
	added.AddSet(set)
	next := GTID{Source: "0", Server: 2, Seq: 11}
	if n := testing.AllocsPerRun(10, func() { set.Add(next) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if set.String() != "0-2-11" || kept.String() != "0-1-10" || added.String() != "0-1-10" {
		t.Errorf("the set is %s, copies made before are %s and %s", set, kept, added)
	}
}

func TestPositionOrderIsByFileNumber(t *testing.T) {
	a := Position{File: "binlog.999999", Offset: 500}
	b := Position{File: "binlog.1000000", Offset: 4}
	if a.Compare(b) != -1 || b.Compare(a) != 1 || a.Compare(a) != 0 {
		t.Fatal("file names are compared as text")
	}
}

func FuzzParseGTIDSet(f *testing.F) {
	f.Add(uuidA+":1-5:app:1-3", true)
	f.Add("0-1-100,1-2-7", false)
	f.Fuzz(func(t *testing.T, text string, my bool) {
		flavor := MariaDB
		if my {
			flavor = MySQL
		}
		s, err := ParseGTIDSet(flavor, text)
		if err != nil {
			return
		}
		again, err := ParseGTIDSet(flavor, s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q reads as %q, which does not read back: %v", text, s, err)
		}
	})
}
