package outbox

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// add merges an interval into a source; the usual call extends the last interval by one and allocates nothing.
func (s *GTIDSet) add(source string, iv interval) {
	src := s.sources[source]
	if src == nil {
		src = &gtidSource{}
		s.sources[source] = src
	}
	list := src.intervals
	if n := len(list); n > 0 && list[n-1].last+1 == iv.first {
		list[n-1].last = iv.last
		return
	}
	// The first interval that touches iv or follows it, and the first that is entirely after it.
	from := sort.Search(len(list), func(i int) bool { return list[i].last+1 >= iv.first })
	to := from
	for to < len(list) && list[to].first <= iv.last+1 {
		iv.first = min(iv.first, list[to].first)
		iv.last = max(iv.last, list[to].last)
		to++
	}
	src.intervals = slices.Replace(list, from, to, iv)
}

// Contains reports whether every transaction of t is in s. For MariaDB: every domain of t is in s at the same sequence
// number or a later one.
func (s *GTIDSet) Contains(t *GTIDSet) bool {
	for key, want := range t.sources {
		have := s.sources[key]
		if have == nil {
			return false
		}
		if s.flavor == MariaDB {
			if have.seq < want.seq {
				return false
			}
			continue
		}
		for _, iv := range want.intervals {
			i := sort.Search(len(have.intervals), func(i int) bool { return have.intervals[i].last >= iv.last })
			if i == len(have.intervals) || have.intervals[i].first > iv.first {
				return false
			}
		}
	}
	return true
}

// CompareGTIDs orders two GTID sets of one server's history, in text form: -1 when a lacks transactions of b, 1 when b lacks some
// of a, 0 when they are equal. known is false when each lacks transactions of the other, when one is empty, and when a text is
// not a set.
func CompareGTIDs(flavor Flavor, a, b string) (order int, known bool) {
	one, err1 := ParseGTIDSet(flavor, a)
	two, err2 := ParseGTIDSet(flavor, b)
	if err1 != nil || err2 != nil || a == "" || b == "" {
		return 0, false
	}
	switch over, under := one.Contains(two), two.Contains(one); {
	case over && under:
		return 0, true
	case over:
		return 1, true
	case under:
		return -1, true
	}
	return 0, false
}

// Clone returns an independent copy.
func (s *GTIDSet) Clone() *GTIDSet {
	c := NewGTIDSet(s.flavor)
	for key, src := range s.sources {
		copied := *src
		copied.intervals = slices.Clone(src.intervals)
		c.sources[key] = &copied
	}
	return c
}

// String returns the server's text form, sources in order: what COM_BINLOG_DUMP and gtid_executed use. It is called for each
// commit of the checkpoint, and a set can have thousands of intervals, so they cost no allocation each.
func (s *GTIDSet) String() string {
	keys, size := make([]string, 0, len(s.sources)), 0
	for key, src := range s.sources {
		keys = append(keys, key)
		size += len(key) + 42 + 21*len(src.intervals) // two numbers of up to 20 digits; intervals usually have ten or less
	}
	slices.Sort(keys)
	text := make([]byte, 0, size)
	last := ""
	for _, key := range keys {
		src := s.sources[key]
		if s.flavor == MariaDB {
			text = separated(text, key)
			text = strconv.AppendUint(append(text, '-'), uint64(src.server), 10)
			text = strconv.AppendUint(append(text, '-'), src.seq, 10)
			continue
		}
		uuid, tag, tagged := strings.Cut(key, ":")
		if uuid != last {
			text = separated(text, uuid)
			last = uuid
		}
		if tagged {
			text = append(append(text, ':'), tag...)
		}
		for _, iv := range src.intervals {
			text = strconv.AppendUint(append(text, ':'), iv.first, 10)
			if iv.last > iv.first {
				text = strconv.AppendUint(append(text, '-'), iv.last, 10)
			}
		}
	}
	return string(text)
}

// separated appends a member to the list in text.
func separated(text []byte, member string) []byte {
	if len(text) > 0 {
		text = append(text, ',')
	}
	return append(text, member...)
}
