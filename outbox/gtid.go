package outbox

import (
	"fmt"
	"strconv"
	"strings"
)

// GTID is the global id of one transaction.
//
// MySQL: Source is the lower-case server UUID, with ":tag" after it when the transaction is tagged (8.3+); Seq counts from 1.
// MariaDB: Source is the domain id in decimal, Server the server id, Seq the sequence number in the domain. The zero value means
// that the server assigned none.
type GTID struct {
	Source string
	Server uint32
	Seq    uint64
}

// IsZero reports whether the transaction has no GTID.
func (g GTID) IsZero() bool { return g.Source == "" }

// String returns the server's text form of the id.
func (g GTID) String() string {
	switch {
	case g.IsZero():
		return ""
	case strings.Contains(g.Source, "-"):
		return g.Source + ":" + strconv.FormatUint(g.Seq, 10)
	}
	return fmt.Sprintf("%s-%d-%d", g.Source, g.Server, g.Seq)
}

// GTIDSet is a set of executed transactions. For MySQL it is a union of intervals per source and tag; for MariaDB the last
// transaction of each domain, which includes all before it. Formats: MySQL reference manual "GTID Sets"; MariaDB knowledge base
// "Global Transaction ID".
//
// The relay keeps its own set because the client library drops tags when it resumes (failure A22). It is not safe for concurrent
// use.
type GTIDSet struct {
	flavor  Flavor
	sources map[string]*gtidSource
}

type gtidSource struct {
	intervals []interval // MySQL: sorted, disjoint, not adjacent
	server    uint32     // MariaDB: of the last transaction
	seq       uint64     // MariaDB: of the last transaction
}

type interval struct{ first, last uint64 }

// NewGTIDSet returns an empty set.
func NewGTIDSet(flavor Flavor) *GTIDSet {
	return &GTIDSet{flavor: flavor, sources: map[string]*gtidSource{}}
}

// ParseGTIDSet parses the server's text form. It accepts spaces and line breaks between members, as servers print them; an empty
// text is the empty set.
func ParseGTIDSet(flavor Flavor, text string) (*GTIDSet, error) {
	s := NewGTIDSet(flavor)
	text = strings.Join(strings.Fields(text), "")
	if text == "" {
		return s, nil
	}
	for _, member := range strings.Split(text, ",") {
		var err error
		if flavor == MariaDB {
			err = s.parseMariaDB(member)
		} else {
			err = s.parseMySQL(member)
		}
		if err != nil {
			return nil, fmt.Errorf("GTID set %q: %w", text, err)
		}
	}
	return s, nil
}

func (s *GTIDSet) parseMariaDB(member string) error {
	parts := strings.Split(member, "-")
	if len(parts) != 3 {
		return fmt.Errorf("%q is not domain-server-sequence", member)
	}
	domain, err1 := strconv.ParseUint(parts[0], 10, 32)
	server, err2 := strconv.ParseUint(parts[1], 10, 32)
	seq, err3 := strconv.ParseUint(parts[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return fmt.Errorf("%q is not domain-server-sequence", member)
	}
	key := strconv.FormatUint(domain, 10)
	if _, twice := s.sources[key]; twice {
		return fmt.Errorf("domain %s is named twice", key)
	}
	s.sources[key] = &gtidSource{server: uint32(server), seq: seq}
	return nil
}

func (s *GTIDSet) parseMySQL(member string) error {
	parts := strings.Split(member, ":")
	uuid := strings.ToLower(parts[0])
	if !isUUID(uuid) || len(parts) < 2 {
		return fmt.Errorf("%q is not uuid:interval", member)
	}
	source, intervals := uuid, 0
	for _, part := range parts[1:] {
		if isTag(part) {
			source = uuid + ":" + strings.ToLower(part)
			continue
		}
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, err1 := strconv.ParseUint(first, 10, 63)
		b, err2 := strconv.ParseUint(last, 10, 63)
		if err1 != nil || err2 != nil || a == 0 || b < a {
			return fmt.Errorf("%q is not an interval", part)
		}
		s.add(source, interval{a, b})
		intervals++
	}
	if intervals == 0 {
		return fmt.Errorf("%q has no interval", member)
	}
	return nil
}

func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// isTag follows the server's rule: a letter or underscore, then up to 31 letters, digits and underscores.
func isTag(text string) bool {
	if text == "" || len(text) > 32 {
		return false
	}
	for i, c := range []byte(strings.ToLower(text)) {
		if c != '_' && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// Flavor returns the flavor of the set's format.
func (s *GTIDSet) Flavor() Flavor { return s.flavor }

// Add adds one transaction. For MariaDB it replaces the domain's last transaction, whatever its number: after a failover in
// non-strict mode numbers may decrease, and the later transaction in the log is the position.
func (s *GTIDSet) Add(g GTID) {
	if g.IsZero() {
		return
	}
	if s.flavor == MariaDB {
		src := s.sources[g.Source]
		if src == nil {
			src = &gtidSource{}
			s.sources[g.Source] = src
		}
		src.server, src.seq = g.Server, g.Seq
		return
	}
	s.add(g.Source, interval{g.Seq, g.Seq})
}

// AddSet adds every transaction of t; for MariaDB t's domains replace those of s.
func (s *GTIDSet) AddSet(t *GTIDSet) {
	for key, src := range t.sources {
		if s.flavor == MariaDB {
			copied := *src
			s.sources[key] = &copied
			continue
		}
		for _, iv := range src.intervals {
			s.add(key, iv)
		}
	}
}
